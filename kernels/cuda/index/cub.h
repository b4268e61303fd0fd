// Private to kernels: sorting by CUB, whose headers are a part of CUDA. Only cub.cu includes these
// headers. The simulated GPU cannot compile them; tests/simulator/cub.cpp implements the same
// functions for it.
#pragma once

#include <cstdint>

#include "kernels/exec.h"

namespace axle::kernels {

// Two arrays: sort keys, and the indices of elements within their rows.
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
// order. The sort is stable. Key is std::uint32_t or std::uint64_t. rows * n must be below 2^31, or
// rows must be 1 and n below 2^32. Returns the result, which is in `a` or in scratch memory of the
// same size. If it is in scratch memory, the contents of `a` are undefined.
template <class Key>
Ranks<Key> sort_by_keys(Cuda& on, DeviceScratch& scratch, Ranks<Key> a, std::int64_t rows,
                        std::int64_t n, int bits);

}  // namespace axle::kernels
