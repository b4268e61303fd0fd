#include "data/mt19937.h"

#include <numeric>
#include <utility>

#include "kernels/error.h"

namespace axle::data {
namespace {

// The limits at which PyTorch changes its algorithms. For a range of kWideRange or more, randint
// draws 64 bits to keep the modulo bias small. For a length of kLongPermutation or more, randperm
// uses the inside-out shuffle.
constexpr std::int64_t kLongPermutation = UINT32_MAX / 20;
constexpr std::int64_t kWideRange = std::int64_t{1} << 28;

}  // namespace

std::vector<std::int64_t> randperm(std::int64_t n, Mt19937& random) {
    if (n < 0) throw ValueError(str("randperm: n must not be negative: ", n));
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    if (n >= kLongPermutation) {
        for (std::int64_t i = 0; i < n; ++i) {
            const auto j = random.next64() % static_cast<std::uint64_t>(i + 1);
            order[static_cast<std::size_t>(i)] = order[j];
            order[j] = i;
        }
        return order;
    }
    std::iota(order.begin(), order.end(), std::int64_t{0});
    for (std::int64_t i = 0; i < n - 1; ++i) {
        const std::int64_t j = i + static_cast<std::int64_t>(random.next32()) % (n - i);
        std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(j)]);
    }
    return order;
}

std::vector<std::int64_t> randperm(std::int64_t n, std::uint64_t seed) {
    Mt19937 random(seed);
    return randperm(n, random);
}

std::vector<std::int64_t> randint(std::int64_t high, std::int64_t count, Mt19937& random) {
    if (high < 1) throw ValueError(str("randint: high must be at least 1: ", high));
    if (count < 0) throw ValueError(str("randint: count must not be negative: ", count));
    std::vector<std::int64_t> values(static_cast<std::size_t>(count));
    const bool wide = high >= kWideRange;
    for (std::int64_t& value : values) {
        const std::uint64_t draw = wide ? random.next64() : random.next32();
        value = static_cast<std::int64_t>(draw % static_cast<std::uint64_t>(high));
    }
    return values;
}

}  // namespace axle::data
