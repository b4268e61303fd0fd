// Private to kernels: sums and means as reductions.
#pragma once

#include <type_traits>

#include "kernels/cuda/reduce/reduce.cuh"

namespace axle::kernels {

// A reduction that computes sums. For f32, the elements of one call of take() are summed in f32,
// and the results of calls in f64.
template <class L>
struct SumReduction {
    using Lane = L;
    using Acc = std::conditional_t<std::is_same_v<L, float>, double, L>;
    static constexpr int kInputs = 1;
    ReduceOutput out;
    Acc divisor = 1;

    __device__ Acc start() const { return 0; }
    template <int kCount>
    __device__ void take(Acc& acc, const L (&x)[kCount], const L (&)[kCount], std::int64_t,
                         std::int64_t, std::int64_t) const {
        L total = x[0];
#pragma unroll
        for (int i = 1; i < kCount; ++i) total += x[i];
        acc += static_cast<Acc>(total);
    }
    __device__ Acc join(Acc a, Acc b) const { return a + b; }
    __device__ void write(std::int64_t result, Acc acc) const {
        out(result, divisor == Acc(1) ? acc : acc / divisor);
    }
};

}  // namespace axle::kernels
