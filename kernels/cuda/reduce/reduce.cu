// Sums, products and means over any dimensions. kernels/cuda/reduce/reduce.cuh explains the walks.
#include "kernels/cuda/reduce/sum.cuh"
#include "kernels/ops/reduce.h"

namespace axle::kernels {
namespace {

template <class T>
using Lane = std::conditional_t<std::is_integral_v<T>, std::int64_t, Compute<T>>;

// A reduction that computes products. Integers are computed as unsigned numbers, which wrap around
// on overflow.
template <class L>
struct ProductReduction {
    using Lane = L;
    using Acc = std::conditional_t<std::is_integral_v<L>, std::uint64_t, double>;
    static constexpr int kInputs = 1;
    ReduceOutput out;

    __device__ Acc start() const { return 1; }
    template <int kCount>
    __device__ void take(Acc& acc, const L (&x)[kCount], const L (&)[kCount], std::int64_t,
                         std::int64_t, std::int64_t) const {
#pragma unroll
        for (int i = 0; i < kCount; ++i) acc *= static_cast<Acc>(x[i]);
    }
    __device__ Acc join(Acc a, Acc b) const { return a * b; }
    __device__ void write(std::int64_t result, Acc acc) const {
        out(result,
            static_cast<std::conditional_t<std::is_integral_v<L>, std::int64_t, double>>(acc));
    }
};

// A reduction that computes sums of the elements that are not NaN.
template <class L>
struct NanSumReduction : SumReduction<L> {
    using Acc = typename SumReduction<L>::Acc;

    template <int kCount>
    __device__ void take(Acc& acc, const L (&x)[kCount], const L (&)[kCount], std::int64_t,
                         std::int64_t, std::int64_t) const {
        L total = 0;
#pragma unroll
        for (int i = 0; i < kCount; ++i) total += x[i] == x[i] ? x[i] : L(0);
        acc += static_cast<Acc>(total);
    }
};

}  // namespace

void nansum(Cuda& on, ConstView x, View y) {
    const ReducePlan plan(x, y);
    visit_float(x.dtype, [&]<class T>() {
        reduce<T>(on, plan, NanSumReduction<Lane<T>>{{ReduceOutput(plan, y)}}, x);
    });
}

void prod(Cuda& on, ConstView x, View y) {
    const ReducePlan plan(x, y);
    visit_lanes<true>(x.dtype, [&]<class T>() {
        reduce<T>(on, plan, ProductReduction<Lane<T>>{ReduceOutput(plan, y)}, x);
    });
}

void sum(Cuda& on, ConstView x, View y) {
    const ReducePlan plan(x, y);
    visit_lanes<true>(x.dtype, [&]<class T>() {
        reduce<T>(on, plan, SumReduction<Lane<T>>{ReduceOutput(plan, y)}, x);
    });
}

void mean(Cuda& on, ConstView x, View y) {
    const ReducePlan plan(x, y);
    visit_float(x.dtype, [&]<class T>() {
        const SumReduction<Lane<T>> op = {ReduceOutput(plan, y), static_cast<double>(plan.n)};
        reduce<T>(on, plan, op, x);
    });
}

}  // namespace axle::kernels
