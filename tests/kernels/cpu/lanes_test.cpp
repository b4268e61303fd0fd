#include "kernels/cpu/lanes.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/half.h"

namespace axle::kernels {
namespace {

// Expects that load_lanes() converts each of the 2^16 numbers of a 16-bit type to the same f32.
template <class T>
void expect_all_numbers_converted(DType dtype) {
    std::vector<T> numbers(1 << 16);
    for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i].bits = static_cast<std::uint16_t>(i);
    std::vector<float> buffer(numbers.size());
    const auto count = static_cast<std::int64_t>(numbers.size());
    const float* const lanes = load_lanes<float>(numbers.data(), dtype, 1, count, buffer.data());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const auto expected = static_cast<float>(numbers[i]);
        if (std::isnan(expected))
            ASSERT_TRUE(std::isnan(lanes[i])) << i;
        else
            ASSERT_EQ(std::bit_cast<std::uint32_t>(lanes[i]),
                      std::bit_cast<std::uint32_t>(expected))
                << i;
    }
}

TEST(LoadLanes, ConvertsAllNumbersOf16BitsExactly) {
    expect_all_numbers_converted<Half>(DType::f16);
    expect_all_numbers_converted<BFloat16>(DType::bf16);
}

}  // namespace
}  // namespace axle::kernels
