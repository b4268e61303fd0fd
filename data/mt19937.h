// Private to data: mt19937, used exactly as by PyTorch's CPU generator, so that seeded orders are
// the same as in PyTorch.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace axle::data {

// The mt19937 generator. A copy has its own state.
class Mt19937 {
  public:
    // Only the low 32 bits are used, as in PyTorch.
    explicit Mt19937(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

    std::uint32_t next32() { return static_cast<std::uint32_t>(engine_()); }
    std::uint64_t next64() {
        const std::uint64_t high = next32();
        return high << 32 | next32();
    }

  private:
    std::mt19937 engine_;
};

// Returns a random permutation of 0 to n - 1, as torch.randperm(n).
std::vector<std::int64_t> randperm(std::int64_t n, Mt19937& random);
std::vector<std::int64_t> randperm(std::int64_t n, std::uint64_t seed);

// Returns `count` integers in [0, high), where high >= 1, as torch.randint(high, (count,)).
std::vector<std::int64_t> randint(std::int64_t high, std::int64_t count, Mt19937& random);

}  // namespace axle::data
