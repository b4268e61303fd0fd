// Private to kernels: sorting by whole-number keys.
#pragma once

#include <cstdint>

#include "kernels/exec.h"

namespace axle::inline v0::kernels {

// An element and its rank among others: the lower key first, then the lower index.
struct Ranked {
    std::uint64_t key;
    std::int64_t index;
};

// Sorts each of `rows` rows of n elements by the lowest `bits` bits of their keys; equal ones keep
// their order. Returns the result, `a` itself or scratch memory of the same size; what else they
// held is lost.
Ranked* radix_sort(Cuda& on, DeviceScratch& scratch, Ranked* a, std::int64_t rows, std::int64_t n,
                   int bits);

}  // namespace axle::inline v0::kernels
