#include "core/float8.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/ops.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "kernels/float8.h"
#include "tests/close.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using tests::expect_error;

std::vector<std::int64_t> bits_of(const Tensor& values) {
    const auto* const bytes = static_cast<const std::uint8_t*>(values.raw_data());
    return {bytes, bytes + values.numel()};
}

Tensor one_scale() { return ones({2}); }

// Covers 8.fp8.
TEST(Float8, RoundsLikePyTorchAfterClamping) {
    const auto casts = tests::golden_json("float8.json")["casts"];
    const std::vector<double> values = casts["values"];
    const Tensor x = tensor(values, {static_cast<std::int64_t>(values.size())});
    for (const auto& [name, dtype] :
         {std::pair("e4m3", DType::f8_e4m3), std::pair("e5m2", DType::f8_e5m2)}) {
        const std::vector<std::int64_t> expected = casts[name];
        EXPECT_EQ(bits_of(to_float8(x, dtype, one_scale(), {}).values), expected) << name;
    }
}

TEST(Float8, DecodesAllBitPatternsLikePyTorch) {
    const auto casts = tests::golden_json("float8.json")["casts"];
    for (const auto& [name, dtype] :
         {std::pair("e4m3", DType::f8_e4m3), std::pair("e5m2", DType::f8_e5m2)}) {
        Tensor all = empty({256}, {.dtype = dtype});
        auto* const bytes = static_cast<std::uint8_t*>(all.raw_data());
        for (int i = 0; i < 256; ++i) bytes[i] = static_cast<std::uint8_t>(i);
        const std::vector<double> read = float8_values(all).to_vector();
        const auto expected = casts[std::string(name) + "_values"];
        for (std::size_t i = 0; i < 256; ++i) {
            if (expected[i].is_number())
                EXPECT_EQ(read[i], expected[i].get<double>()) << name << ' ' << i;
            else if (expected[i] == "nan")
                EXPECT_TRUE(std::isnan(read[i])) << name << ' ' << i;
            else
                EXPECT_EQ(std::fabs(read[i]), std::numeric_limits<double>::infinity());
        }
    }
}

TEST(Float8, RoundsE4M3ToNearestEven) {
    for (int i = 0; i < 0x7e; ++i) {
        const auto number = [](int bits) {
            Float8E4M3 x;
            x.bits = static_cast<std::uint8_t>(bits);
            return static_cast<float>(x);
        };
        const float low = number(i), high = number(i + 1), middle = (low + high) / 2;
        EXPECT_EQ(Float8E4M3(low).bits, i);
        EXPECT_EQ(Float8E4M3(std::nextafter(middle, low)).bits, i);
        EXPECT_EQ(Float8E4M3(middle).bits, i + i % 2);
        EXPECT_EQ(Float8E4M3(std::nextafter(middle, high)).bits, i + 1);
        EXPECT_EQ(Float8E4M3(-low).bits, 0x80 | i);
    }
}

TEST(Float8, KeepsNanAndSaturatesInfinity) {
    const double infinity = std::numeric_limits<double>::infinity();
    const Tensor x = tensor({std::nan(""), infinity, -infinity}, {3});
    for (const DType dtype : {DType::f8_e4m3, DType::f8_e5m2}) {
        const std::vector<double> y =
            float8_values(to_float8(x, dtype, one_scale(), {}).values).to_vector();
        EXPECT_TRUE(std::isnan(y[0]));
        EXPECT_EQ(y[1], float8_range(dtype));
        EXPECT_EQ(y[2], -float8_range(dtype));
    }
}

TEST(Float8, RecordsLargestAbsoluteValue) {
    manual_seed(2);
    const Tensor x = randn({70001});
    const double largest = max(abs(x)).item();
    for (const DType dtype : {f32, f64, bf16, f16}) {
        Tensor seen = zeros({});
        to_float8(x.to(dtype), DType::f8_e4m3, one_scale(), seen);
        EXPECT_NEAR(seen.item(), largest, dtype == f32 || dtype == f64 ? 1e-6 : 0.02);
    }
    Tensor more = full({}, 1e6);
    to_float8(x, DType::f8_e4m3, one_scale(), more);
    EXPECT_EQ(more.item(), 1e6);
}

TEST(Float8, ScalesLargestAbsoluteValueToLargestFiniteValue) {
    const Tensor x = tensor({0.5, -2, 1}, {3});
    const Float8Tensor y = to_float8(x, DType::f8_e4m3);
    EXPECT_EQ(y.scale.to_vector()[0], 224);
    EXPECT_EQ(float8_values(y.values).to_vector(), (std::vector<double>{112, -448, 224}));
    EXPECT_EQ(to_float8(x, DType::f8_e4m3, true).scale.to_vector(),
              (std::vector<double>{128, 1.0 / 128}));
    EXPECT_EQ(float8_values(to_float8(zeros({2}), DType::f8_e4m3).values).to_vector(),
              (std::vector<double>{0, 0}));
}

TEST(Float8Matmul, MatchesProductOfDecodedValues) {
    manual_seed(4);
    const Float8Tensor a = to_float8(randn({5, 32}), DType::f8_e5m2);
    const Float8Tensor b = to_float8(randn({16, 32}) * 0.1, DType::f8_e4m3);
    const Tensor wide = matmul(float8_values(a.values), transpose(float8_values(b.values), 0, 1)) *
                        (a.scale[1] * b.scale[1]);
    tests::expect_close(float8_matmul(a, b, {.dtype = f32}), wide, 1e-6);
    EXPECT_EQ(float8_matmul(a, b, {.dtype = bf16}).dtype(), bf16);
    tests::expect_close(float8_matmul(transposed(transposed(a)), b, {.dtype = f32}), wide, 1e-6);
}

TEST(Float8, RejectsInvalidArguments) {
    expect_error<DTypeError>({"to_float8: the dtype must be an 8-bit float: bfloat16"},
                             [] { to_float8(ones({2}), bf16, one_scale(), {}); });
    expect_error<ShapeError>({"float8_matmul: inner dimensions differ: a is [2, 3], b is [2, 4]"},
                             [] {
                                 float8_matmul(to_float8(ones({2, 3}), DType::f8_e4m3),
                                               to_float8(ones({2, 4}), DType::f8_e4m3), {});
                             });
    expect_error<ShapeError>(
        {"float8_matmul: operands must be matrices of 8-bit floats: a is [2, 3] float32"}, [] {
            float8_matmul({ones({2, 3}), one_scale()}, {ones({2, 3}), one_scale()}, {});
        });
}

TEST(HasFloat8, IsFalseForTheCpu) { EXPECT_FALSE(has_float8(Device::cpu())); }

}  // namespace
}  // namespace axle
