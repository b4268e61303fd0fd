// Tests sorting and cumsum with inputs that the op cases do not have, such as all half-precision
// values, rows of many lengths, signed zeros and NaN.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/ops.h"
#include "core/random.h"
#include "tests/close.h"

namespace axle::tests {
namespace {

// Returns whether a precedes b in ascending order, in which NaN is last.
bool precedes(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

void expect_sorted(const Tensor& x, bool descending) {
    const auto [values, indices] = sort(x, -1, descending);
    const std::vector<double> from = x.to_vector();
    std::vector<std::int64_t> order(from.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        const double left = from[static_cast<std::size_t>(a)];
        const double right = from[static_cast<std::size_t>(b)];
        return descending ? precedes(right, left) : precedes(left, right);
    });
    const Tensor expected_value = tensor(order, {x.numel()});
    expect_same_bits(indices, expected_value);
    expect_same_bits(values, gather(x, 0, expected_value));
}

TEST(Sort, SortsAllHalfPrecisionValues) {
    std::vector<std::uint16_t> mixed;
    for (std::uint32_t i = 0; i < 1 << 16; ++i)
        mixed.push_back(static_cast<std::uint16_t>(i * 40503));
    for (const DType dtype : {f16, bf16}) {
        const Tensor x = Tensor::from_blob(mixed.data(), {1 << 16}, dtype);
        expect_sorted(x, false);
        expect_sorted(x, true);
    }
}

TEST(Sort, SortsRowsOfManyLengths) {
    manual_seed(3);
    for (const std::int64_t n : {1, 2, 3, 47, 48, 49, 50, 255, 257, 5000}) {
        for (const DType dtype : {f64, f32}) {
            expect_sorted(randn({n}, {dtype}), false);
            expect_sorted(randn({n}, {dtype}), true);
        }
        for (const DType dtype : {i64, i32, u8}) {
            expect_sorted(randint(0, 200, {n}, {dtype}), false);
            expect_sorted(randint(0, 200, {n}, {dtype}), true);
        }
    }
}

TEST(Sort, SortsExtremeIntegers) {
    const std::int64_t smallest = INT64_MIN, largest = INT64_MAX;
    std::vector<std::int64_t> wide;
    for (std::int64_t i = 0; i < 70; ++i)
        wide.push_back(i % 3 == 0 ? largest - i : i % 3 == 1 ? smallest + i : i - 35);
    for (const bool descending : {false, true}) {
        const auto [values, indices] = sort(tensor(wide, {70}), 0, descending);
        std::vector<std::int64_t> expected_value = wide;
        std::sort(expected_value.begin(), expected_value.end());
        if (descending) std::reverse(expected_value.begin(), expected_value.end());
        expect_same_bits(values, tensor(expected_value, {70}));
        expect_same_bits(gather(tensor(wide, {70}), 0, indices), values);
    }
}

TEST(Sort, KeepsOrderOfSignedZerosAndBitsOfNan) {
    const float nan = std::nanf("");
    std::vector<float> row = {0.0f, -nan, -0.0f, 1.0f, nan, -0.0f, 0.0f};
    row.resize(120, -1.0f);  // rows of this length are not sorted by insertion
    for (const std::size_t n : {std::size_t{7}, row.size()}) {
        const auto length = static_cast<std::int64_t>(n);
        const Tensor x = Tensor::from_blob(row.data(), {length}, f32);
        const auto [values, indices] = sort(x);
        const float* const y = values.data<float>() + n - 7;
        EXPECT_TRUE(!std::signbit(y[0]) && std::signbit(y[1]) && std::signbit(y[2]) &&
                    !std::signbit(y[3]));
        EXPECT_EQ(y[4], 1.0f);
        EXPECT_EQ(indices.to_vector()[n - 2], 1);
        EXPECT_EQ(indices.to_vector()[n - 1], 4);
        EXPECT_EQ(std::memcmp(&y[5], &row[1], sizeof(float)), 0) << "another NaN";
        EXPECT_EQ(sort(x, 0, true).second.to_vector()[0], 1);
    }
}

TEST(Sort, PropagatesGradientsToOriginalPositions) {
    const Tensor x = tensor({3.0, 1, 2}, {3}).set_requires_grad();
    sum(sort(x).first * tensor({10.0, 20, 30}, {3})).backward();
    expect_same_bits(x.grad(), tensor({30.0, 10, 20}, {3}));
    EXPECT_FALSE(argsort(x).requires_grad());
}

TEST(Cumsum, AccumulatesF32InF64) {
    const std::int64_t n = 100000;
    const Tensor y = cumsum(full({n}, 0.1), 0);
    const double expected_value = static_cast<double>(0.1f) * static_cast<double>(n);
    EXPECT_EQ(select(y, 0, n - 1).item(), static_cast<double>(static_cast<float>(expected_value)));
}

TEST(Cumsum, WrapsAroundForIntegers) {
    const Tensor x = tensor(std::vector<std::int64_t>{INT64_MAX, 1, 1}, {3});
    expect_same_bits(cumsum(x, 0),
                     tensor(std::vector<std::int64_t>{INT64_MAX, INT64_MIN, INT64_MIN + 1}, {3}));
}

}  // namespace
}  // namespace axle::tests
