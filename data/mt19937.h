// Private to data: the mt19937 generator and random functions that return the same numbers as
// PyTorch's CPU generator for the same seed.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace axle::data {

// The mt19937 generator. A copy has its own state.
class Mt19937 {
  public:
    // Uses only the low 32 bits of the seed, as PyTorch does.
    explicit Mt19937(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

    std::uint32_t next32() { return static_cast<std::uint32_t>(engine_()); }
    std::uint64_t next64() {
        const std::uint64_t high = next32();
        return high << 32 | next32();
    }
    // Returns a number in [0, 1), the same as torch.rand((), dtype=torch.float64).
    double uniform() {
        return static_cast<double>(next64() & ((std::uint64_t{1} << 53) - 1)) * 0x1p-53;
    }

  private:
    std::mt19937 engine_;
};

// Return a random permutation of the integers 0 to n - 1, the same as torch.randperm(n). Throw
// ValueError if n is negative.
std::vector<std::int64_t> randperm(std::int64_t n, Mt19937& random);
std::vector<std::int64_t> randperm(std::int64_t n, std::uint64_t seed);

// Returns `count` integers in [0, high), the same as torch.randint(high, (count,)). Throws
// ValueError unless high >= 1 and count >= 0.
std::vector<std::int64_t> randint(std::int64_t high, std::int64_t count, Mt19937& random);

}  // namespace axle::data
