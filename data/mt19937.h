// Private to data: the generator behind sample orders, mt19937 drawn from as PyTorch's CPU
// generator does, so that seeded orders are those that a PyTorch user gets.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace axle::inline v0::data {

// Copying it copies its state.
class Mt19937 {
  public:
    // The low 32 bits count, as in PyTorch.
    explicit Mt19937(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

    std::uint32_t next32() { return static_cast<std::uint32_t>(engine_()); }
    std::uint64_t next64() {
        const std::uint64_t high = next32();
        return high << 32 | next32();
    }

  private:
    std::mt19937 engine_;
};

// torch.randperm(n): 0 to n - 1 in random order.
std::vector<std::int64_t> randperm(std::int64_t n, Mt19937& random);
std::vector<std::int64_t> randperm(std::int64_t n, std::uint64_t seed);

// torch.randint(high, (count,)): integers in [0, high), high >= 1.
std::vector<std::int64_t> randint(std::int64_t high, std::int64_t count, Mt19937& random);

}  // namespace axle::inline v0::data
