// Tests quantized weights: values recorded from bitsandbytes (tests/golden/record_quantized.py),
// the product and its gradient, memory, and errors.
#include "core/quantization/quantized_weight.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/files/safetensors.h"
#include "core/memory/memory.h"
#include "core/ops.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;

struct Recorded {
    const char* name;
    const char* weight;
    DType dtype;
    WeightQuantization options;
};

Tensor recorded(const std::string& name) {
    return SafetensorsFile(std::string(AXLE_TESTS_DIR) + "/golden/quantized.safetensors")
        .tensor(name);
}

void expect_same_bytes(const Tensor& actual, const Tensor& expected) {
    ASSERT_EQ(actual.shape(), expected.shape());
    ASSERT_EQ(actual.dtype(), expected.dtype());
    EXPECT_EQ(std::memcmp(actual.raw_data(), expected.raw_data(),
                          static_cast<std::size_t>(actual.numel() * size_of(actual.dtype()))),
              0);
}

// Returns f32 random numbers that require no gradient.
Tensor random(const Shape& shape, std::uint64_t seed = 1) {
    manual_seed(seed);
    return randn(shape);
}

QuantizedWeight nf4(const Tensor& weight, bool nested = true) {
    return quantize_weight(weight, {.double_quantization = nested});
}

class RecordedQuantizedWeight : public testing::TestWithParam<Recorded> {};

TEST_P(RecordedQuantizedWeight, HasTheValuesOfBitsandbytes) {
    const Recorded& c = GetParam();
    const std::string name = c.name;
    const QuantizedWeight w = quantize_weight(recorded(c.weight).to(c.dtype), c.options);
    EXPECT_EQ(w.dtype, c.dtype);
    expect_same_bytes(w.values, recorded(name + ".values"));
    expect_same_bytes(w.absmax, recorded(name + ".absmax"));
    const Tensor weight = recorded(name + ".weight");
    if (!c.options.double_quantization)
        return expect_same_bits(dequantize_weight(w, weight.dtype()), weight);
    // PyTorch adds the absmax values in another order to compute their mean.
    EXPECT_NEAR(w.nested_offset.item(), recorded(name + ".nested_offset").item(), 1e-7);
    expect_close(w.nested_absmax, recorded(name + ".nested_absmax"), 1e-7);
    expect_close(dequantize_weight(w, f32), weight.to(f32), c.dtype == f32 ? 1e-6 : 2e-3);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, RecordedQuantizedWeight,
    testing::Values(Recorded{"int8", "weight", f16, {.format = WeightFormat::int8}},
                    Recorded{"nf4", "weight", f32, {}},
                    Recorded{"nested", "weight", f32, {.double_quantization = true}},
                    Recorded{
                        "half", "weight", f16, {.block_size = 128, .double_quantization = true}},
                    Recorded{"odd_nf4", "odd", f32, {}}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(QuantizedWeight, NeedsTheMemoryOfItsFormat) {
    const Tensor weight = random({256, 320});  // 81,920 elements in 1,280 blocks of 64
    EXPECT_EQ(quantize_weight(weight, {.format = WeightFormat::int8}).bytes(), 81920 + 256 * 4);
    EXPECT_EQ(nf4(weight, false).bytes(), 81920 / 2 + 1280 * 4);
    EXPECT_EQ(nf4(weight).bytes(), 81920 / 2 + 1280 + 1280 / 256 * 4 + 4);
}

TEST(QuantizedWeight, IsZeroForZeros) {
    for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4})
        expect_same_bits(
            dequantize_weight(quantize_weight(zeros({3, 40}), {.format = format}), f32),
            zeros({3, 40}));
}

TEST(QuantizedWeight, IsNearTheWeight) {
    const Tensor weight = random({64, 64});
    const auto error = [&](const WeightQuantization& options) {
        const Tensor difference = dequantize_weight(quantize_weight(weight, options), f32) - weight;
        return std::sqrt(mean(difference * difference).item());
    };
    EXPECT_LT(error({.format = WeightFormat::int8}), 0.008);
    EXPECT_LT(error({}), 0.1);
    EXPECT_LT(error({.double_quantization = true}), 0.1);
}

class RecordedLlmInt8 : public testing::TestWithParam<std::pair<const char*, double>> {};

// bitsandbytes multiplies integers, and rounds its results to f16.
TEST_P(RecordedLlmInt8, HasTheProductsAndGradientsOfBitsandbytes) {
    const auto& [name, threshold] = GetParam();
    const QuantizedWeight w = quantize_weight(
        recorded("weight"), {.format = WeightFormat::int8, .llm_int8_threshold = threshold});
    const Tensor expected = recorded(std::string(name) + ".y").to(f32);
    for (const DType dtype : {f16, f32}) {
        SCOPED_TRACE(dtype);
        const Tensor x = recorded("x").to(dtype).requires_grad_();
        const Tensor y = quantized_linear(x, w, recorded("bias"));
        EXPECT_EQ(y.dtype(), dtype);
        expect_close(y.detach().to(f32), expected, 2e-3);
        sum(square(y.to(f32))).backward();
        expect_close(x.grad().to(f32), recorded(std::string(name) + ".grad").to(f32), 2e-2);
    }
}

INSTANTIATE_TEST_SUITE_P(Thresholds, RecordedLlmInt8,
                         testing::Values(std::pair{"outliers", 6.0}, std::pair{"no_outliers", 0.0}),
                         [](const auto& one) { return std::string(one.param.first); });

TEST(LlmInt8, QuantizesInputsUnderAutocastBeforeTheProduct) {
    const Tensor weight = random({48, 33}, 2), x = random({5, 33});
    const WeightQuantization options{.format = WeightFormat::int8, .llm_int8_threshold = 0};
    const QuantizedWeight w = quantize_weight(weight, options);
    const Tensor expected = quantized_linear(x.to(bf16), w);
    const AutocastGuard guard(bf16);
    expect_same_bits(quantized_linear(x, w), expected);
}

TEST(LlmInt8, GivesNanForRowsThatAreNotFinite) {
    const QuantizedWeight w =
        quantize_weight(random({4, 33}), {.format = WeightFormat::int8, .llm_int8_threshold = 0});
    Tensor x = random({3, 33});
    x.select(0, 1).select(0, 2).fill_(std::nan(""));
    const Tensor y = quantized_linear(x, w);
    EXPECT_TRUE(isnan(y.select(0, 1)).all().item());
    EXPECT_TRUE(isfinite(y.select(0, 0)).all().item());
}

TEST(LlmInt8, RefusesOtherFormatsAndInvalidThresholds) {
    const Tensor weight = random({4, 33});
    expect_error<ValueError>({"quantize_weight: llm_int8_threshold", "int8 only"},
                             [&] { quantize_weight(weight, {.llm_int8_threshold = 6}); });
    for (const double invalid : {-1.0, double{INFINITY}})
        expect_error<ValueError>({"quantize_weight: llm_int8_threshold must be finite"}, [&] {
            quantize_weight(weight, {.format = WeightFormat::int8, .llm_int8_threshold = invalid});
        });
}

TEST(QuantizedLinear, GivesTheBitsOfLinearWithTheDequantizedWeight) {
    const Tensor bias = random({48}, 3);
    for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4}) {
        const QuantizedWeight w =
            quantize_weight(random({48, 33}, 2), {.format = format, .double_quantization = true});
        for (const DType dtype : {f32, f64, bf16, f16}) {
            SCOPED_TRACE(dtype);
            const Tensor x = random({2, 5, 33}).to(dtype);
            expect_same_bits(quantized_linear(x, w, bias.to(dtype)),
                             linear(x, dequantize_weight(w, dtype), bias.to(dtype)));
        }
    }
}

// The rows of these weights are dequantized in several blocks. One row of the second weight is a
// block, and odd rows begin in the middle of a byte.
TEST(QuantizedLinear, MultipliesSeveralBlocksOfRows) {
    for (const Shape& shape : {Shape{32000, 33}, Shape{3, 600001}}) {
        const QuantizedWeight w = nf4(random(shape, 2));
        Tensor x = random({2, shape[1]}).requires_grad_();
        Tensor plain_x = x.detach().clone().requires_grad_();
        const Tensor dy = random({2, shape[0]}, 3);
        const Tensor y = quantized_linear(x, w);
        const Tensor expected = linear(plain_x, dequantize_weight(w, f32));
        expect_close(y, expected, 1e-6);
        sum(y * dy).backward();
        sum(expected * dy).backward();
        expect_close(x.grad(), plain_x.grad(), 1e-5);
    }
}

// The gradient is a sum over four blocks.
TEST(QuantizedLinear, RoundsGradientsOfHalfPrecisionInputsOnce) {
    const QuantizedWeight w = nf4(random({56, 70001}, 2));
    Tensor x = random({2, 70001}).to(bf16).requires_grad_();
    const Tensor dy = random({2, 56}, 3).to(bf16);
    const Tensor actual = autograd::grad({quantized_linear(x, w)}, {x}, {dy})[0].to(bf16);
    const Tensor expected = matmul(dy.to(f32), dequantize_weight(w, bf16).to(f32)).to(bf16);
    EXPECT_LT(mean(ne(actual, expected).to(f32)).item(), 0.01);
}

TEST(QuantizedLinear, DequantizesOnlyABlockOfTheWeight) {
    const QuantizedWeight w = nf4(random({8192, 1024}));  // 32 MiB in f32
    Tensor x = random({2, 1024}).requires_grad_();
    host_memory::reset_peak();
    const std::int64_t before = host_memory::stats().peak;
    sum(quantized_linear(x, w)).backward();
    EXPECT_LT(host_memory::stats().peak - before, 6 << 20);
}

TEST(QuantizedLinear, HasTheGradientsOfLinearWithTheDequantizedWeight) {
    for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4}) {
        const QuantizedWeight w = quantize_weight(random({20, 33}, 2), {.format = format});
        const Tensor weight = dequantize_weight(w, f64), dy = random({4, 20}, 4).to(f64);
        Tensor x = random({4, 33}).to(f64).requires_grad_();
        Tensor bias = random({20}, 3).to(f64).requires_grad_();
        const auto expected = autograd::grad({linear(x, weight, bias)}, {x, bias}, {dy});
        const auto actual = autograd::grad({quantized_linear(x, w, bias)}, {x, bias}, {dy});
        expect_close(actual[0], expected[0], 1e-12);
        expect_close(actual[1], expected[1], 1e-12);
    }
}

TEST(QuantizedLinear, CanBeDifferentiatedTwice) {
    const QuantizedWeight w = nf4(random({6, 32}, 2));
    const Tensor weight = dequantize_weight(w, f64);
    Tensor x = random({4, 32}).to(f64).requires_grad_();
    const auto second = [&](const auto& product) {
        const Tensor y = product(x);
        const auto first = autograd::grad({sum(y * y * y)}, {x}, {}, {.create_graph = true});
        return autograd::grad({sum(first[0] * first[0])}, {x})[0];
    };
    expect_close(second([&](const Tensor& t) { return quantized_linear(t, w); }),
                 second([&](const Tensor& t) { return linear(t, weight); }), 1e-9);
}

TEST(QuantizedLinear, ComputesInTheAutocastDType) {
    const QuantizedWeight w = nf4(random({20, 32}, 2));
    Tensor x = random({4, 32}).requires_grad_();
    const Tensor expected = linear(x.to(bf16), dequantize_weight(w, bf16));
    const AutocastGuard autocast(bf16);
    const Tensor y = quantized_linear(x, w);
    expect_same_bits(y, expected);
    sum(y).backward();
    EXPECT_EQ(x.grad().dtype(), f32);
}

TEST(QuantizedLinear, DetectsAWeightThatChangesBeforeBackward) {
    QuantizedWeight w = nf4(random({20, 32}, 2));
    Tensor x = random({4, 32}).requires_grad_();
    const Tensor y = sum(quantized_linear(x, w));
    w.values.zero_();
    expect_error<UsageError>({""}, [&] { y.backward(); });
}

TEST(QuantizedLinear, RefusesOperandsThatDoNotFit) {
    const QuantizedWeight w = nf4(random({20, 32}, 2));
    expect_error<ShapeError>({"quantized_linear: the last dimension of x", "32", "[4, 20]"}, [&] {
        quantized_linear(zeros({4, 20}), w);
    });
    expect_error<ShapeError>({"quantized_linear: bias must be [20]", "[32]"}, [&] {
        quantized_linear(zeros({4, 32}), w, zeros({32}));
    });
    expect_error<DTypeError>({"quantized_linear", "int64"}, [&] {
        quantized_linear(zeros({4, 32}, {.dtype = i64}), w);
    });
    expect_error<DTypeError>({"dequantize_weight: the dtype must be floating", "int64"},
                             [&] { dequantize_weight(w, i64); });
}

TEST(QuantizedWeight, RefusesWeightsAndOptionsOutsideTheirRanges) {
    expect_error<ShapeError>({"quantize_weight: the weight must be [out, in]", "[4]"},
                             [] { quantize_weight(zeros({4})); });
    expect_error<DTypeError>({"quantize_weight", "int64"}, [] {
        quantize_weight(zeros({4, 4}, {.dtype = i64}));
    });
    expect_error<DeviceError>({"quantize_weight", "[4, 4]", "meta"}, [] {
        quantize_weight(zeros({4, 4}, {.device = Device::meta()}));
    });
    for (const std::int64_t block : {0, 16, 63, 96, 8192})
        expect_error<ValueError>(
            {"quantize_weight: block_size must be a power of two in [32, 4096]",
             std::to_string(block).c_str()},
            [&] {
                quantize_weight(zeros({4, 4}), {.block_size = block});
            });
    for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")})
        for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4}) {
            Tensor weight = random({4, 70});
            weight.select(0, 2).fill_(bad);
            expect_error<ValueError>({"quantize_weight", "[4, 70]", "infinite or NaN"},
                                     [&] { quantize_weight(weight, {.format = format}); });
        }
}

}  // namespace
}  // namespace axle
