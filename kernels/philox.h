// Philox 4x32-10, the counter-based random generator of Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3" (SC 2011). Its only state is (seed, offset), and its output is a pure function
// of this state.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/half.h"

namespace axle::kernels {

struct Philox {
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;  // in blocks of four 32-bit words
    // A pointer to {seed, offset} in GPU memory, read when the kernel runs; used in captured CUDA
    // graphs. If it is not null, `seed` is ignored and `offset` is added to the offset in GPU
    // memory.
    const std::uint64_t* base = nullptr;

    // Returns the same state with a null `base`: reads the seed and the offset from GPU memory if
    // necessary. GPU kernels call this function first.
    AXLE_HOST_DEVICE constexpr Philox resolved() const {
        return base == nullptr ? *this : Philox{base[0], base[1] + offset, nullptr};
    }

    // Returns the four words of block `offset + index`.
    AXLE_HOST_DEVICE constexpr std::array<std::uint32_t, 4> block(std::uint64_t index) const {
        const std::uint64_t counter = offset + index;
        std::array<std::uint32_t, 4> c = {static_cast<std::uint32_t>(counter),
                                          static_cast<std::uint32_t>(counter >> 32), 0, 0};
        std::uint32_t k0 = static_cast<std::uint32_t>(seed);
        std::uint32_t k1 = static_cast<std::uint32_t>(seed >> 32);
        for (int round = 0; round < 10; ++round) {
            const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0];
            const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c[2];
            c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
                 static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        return c;
    }
    // Returns word i % 4 of block `offset + i / 4`.
    AXLE_HOST_DEVICE constexpr std::uint32_t word(std::uint64_t i) const {
        return block(i / 4)[i % 4];
    }
    // Converts the upper 24 bits of a word to a float in [0, 1).
    AXLE_HOST_DEVICE static constexpr float to_unit(std::uint32_t word) {
        return static_cast<float>(word >> 8) * 0x1p-24f;
    }
};

}  // namespace axle::kernels
