// Private to kernels: the sum of exponentials of a row in one pass.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/cuda/device.cuh"

namespace axle::kernels {

// The sum of e^(x - top), where top is the largest x so far. A NaN does not change top but makes
// the sum NaN. The elements of one call of add() are summed in C, and the results of calls in f64.
template <class C>
struct ExpSum {
    C top;
    double sum;

    __device__ static ExpSum none() { return {-std::numeric_limits<C>::infinity(), 0}; }

    // Adds kCount elements to the sum. An element -infinity has no effect.
    template <int kCount>
    __device__ void add(const C (&x)[kCount]) {
        C highest = top;
#pragma unroll
        for (int i = 0; i < kCount; ++i) highest = x[i] > highest ? x[i] : highest;
        if (highest > top) {
            sum *= static_cast<double>(exp(top - highest));
            top = highest;
        }
        const C base = top == -std::numeric_limits<C>::infinity() ? C(0) : top;
        C total = 0;
#pragma unroll
        for (int i = 0; i < kCount; ++i) total += exp(x[i] - base);
        sum += static_cast<double>(total);
    }
};

struct JoinExpSums {
    template <class C>
    __device__ ExpSum<C> operator()(const ExpSum<C>& a, const ExpSum<C>& b) const {
        const bool swap = b.top > a.top;
        const ExpSum<C> high = swap ? b : a, low = swap ? a : b;
        if (low.top == high.top) return {high.top, high.sum + low.sum};
        return {high.top, high.sum + low.sum * static_cast<double>(exp(low.top - high.top))};
    }
};

}  // namespace axle::kernels
