// Private to kernels: sorting by CUB, whose headers come with CUDA. Only cub.cu includes them. For
// the simulated GPU, which cannot compile these headers, tests/simulator/cub.cpp implements the
// same functions.
#pragma once

#include <cstdint>

#include "kernels/exec.h"

namespace axle::kernels {

// Separate arrays of sort keys and of element indices within their rows.
template <class Key>
struct Ranks {
    Key* keys;
    std::uint32_t* indices;
};
template <class Key>
Ranks<Key> take_ranks(DeviceScratch& scratch, std::int64_t count) {
    return {scratch.take<Key>(count), scratch.take<std::uint32_t>(count)};
}

// Sorts each of `rows` rows of n elements by the lowest `bits` bits of their keys in ascending
// order; the sort is stable. Key is std::uint32_t or std::uint64_t; rows * n < 2^31, or rows = 1
// and n < 2^32. Returns the result, which is in `a` or in scratch memory of the same size; other
// contents are undefined.
template <class Key>
Ranks<Key> sort_by_keys(Cuda& on, DeviceScratch& scratch, Ranks<Key> a, std::int64_t rows,
                        std::int64_t n, int bits);

}  // namespace axle::kernels
