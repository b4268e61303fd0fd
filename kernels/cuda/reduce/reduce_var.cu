// Variances. First the means are computed, then the squared deviations from the means. Each of
// these steps reads memory once.
#include "kernels/cuda/reduce/sum.cuh"
#include "kernels/ops/reduce.h"

namespace axle::kernels {
namespace {

// Sums the squared deviations of elements from centre[result].
template <class L>
struct SquareReduction {
    using Lane = L;
    using Acc = double;
    static constexpr int kInputs = 1;
    ReduceOutput out;
    const L* centre;
    double divisor;

    __device__ Acc start() const { return 0; }
    template <int kCount>
    __device__ void take(Acc& acc, const L (&x)[kCount], const L (&)[kCount], std::int64_t,
                         std::int64_t, std::int64_t result) const {
        const L middle = centre[result];
        L total = 0;
#pragma unroll
        for (int i = 0; i < kCount; ++i) total += (x[i] - middle) * (x[i] - middle);
        acc += static_cast<double>(total);
    }
    __device__ Acc join(Acc a, Acc b) const { return a + b; }
    __device__ void write(std::int64_t result, Acc acc) const { out(result, acc / divisor); }
};

}  // namespace

void var(Cuda& on, ConstView x, double correction, View y) {
    const ReducePlan plan(x, y);
    const auto n = static_cast<double>(plan.n);
    visit_float(x.dtype, [&]<class T>() {
        using L = Compute<T>;
        DeviceScratch scratch(on);
        L* const mean = scratch.take<L>(plan.outputs);
        reduce<T>(on, plan, SumReduction<L>{ReduceOutput(mean, dtype_of<L>, plan.outputs), n}, x);
        reduce<T>(on, plan,
                  SquareReduction<L>{ReduceOutput(plan, y), mean, std::max(0.0, n - correction)},
                  x);
    });
}

}  // namespace axle::kernels
