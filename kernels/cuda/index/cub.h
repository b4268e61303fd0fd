// Private to kernels: sorting by CUB, whose headers come with CUDA. cub.cu alone includes them; on
// the simulated GPU, which has no place for what they hold, tests/simulator/cub.cpp does the same.
#pragma once

#include <cstdint>

#include "kernels/exec.h"

namespace axle::inline v0::kernels {

// Elements apart: what they are sorted by, and which of their row they are.
template <class Key>
struct Ranks {
    Key* keys;
    std::uint32_t* indices;
};
template <class Key>
Ranks<Key> take_ranks(DeviceScratch& scratch, std::int64_t count) {
    return {scratch.take<Key>(count), scratch.take<std::uint32_t>(count)};
}

// Sorts each of `rows` rows of n elements by the lowest `bits` bits of their keys, the lowest
// first; equal ones keep their order. Key is std::uint32_t or std::uint64_t; rows * n < 2^31, or
// rows = 1 and n < 2^32. Returns the result, `a` itself or scratch memory of the same size; what
// else they held is lost.
template <class Key>
Ranks<Key> sort_by_keys(Cuda& on, DeviceScratch& scratch, Ranks<Key> a, std::int64_t rows,
                        std::int64_t n, int bits);

}  // namespace axle::inline v0::kernels
