// Sums and means over any dimensions. kernels/cuda/reduce/reduce.cuh explains the walks.
#include "kernels/cuda/reduce/sum.cuh"
#include "kernels/ops/reduce.h"

namespace axle::kernels {
namespace {

template <class T>
using Lane = std::conditional_t<std::is_integral_v<T>, std::int64_t, Compute<T>>;

}  // namespace

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
