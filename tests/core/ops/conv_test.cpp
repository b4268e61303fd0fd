// Compares convolutions of many geometries with the definition, and tests layouts, threads, dtypes
// and errors.
#include <vector>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "kernels/thread_pool.h"
#include "tests/close.h"
#include "tests/op_case.h"

namespace axle::tests {

namespace {

struct Layer {
    Shape x, weight;
    Conv2dOptions options = {};
};

std::ostream& operator<<(std::ostream& out, const Layer& l) {
    return out << "x " << l.x << ", weight " << l.weight << ", stride " << l.options.stride
               << ", padding " << l.options.padding << ", dilation " << l.options.dilation
               << ", groups " << l.options.groups;
}

// Calls f(index in x, index in weight, index in y) for every product in the definition.
template <class F>
void for_each_product(const Layer& l, const Shape& y, F f) {
    const Conv2dOptions& o = l.options;
    const std::int64_t out = l.weight[0] / o.groups, in = l.weight[1];
    std::int64_t at_y = 0;
    for (std::int64_t n = 0; n < y[0]; ++n)
        for (std::int64_t k = 0; k < y[1]; ++k)
            for (std::int64_t r = 0; r < y[2]; ++r)
                for (std::int64_t q = 0; q < y[3]; ++q, ++at_y)
                    for (std::int64_t c = 0; c < in; ++c)
                        for (std::int64_t i = 0; i < l.weight[2]; ++i)
                            for (std::int64_t j = 0; j < l.weight[3]; ++j) {
                                const std::int64_t h =
                                    r * o.stride.h - o.padding.h + i * o.dilation.h;
                                const std::int64_t w =
                                    q * o.stride.w - o.padding.w + j * o.dilation.w;
                                if (h < 0 || h >= l.x[2] || w < 0 || w >= l.x[3]) continue;
                                const std::int64_t channel = k / out * in + c;
                                f(((n * l.x[1] + channel) * l.x[2] + h) * l.x[3] + w,
                                  ((k * in + c) * l.weight[2] + i) * l.weight[3] + j, at_y);
                            }
}

// The output y, and the gradients of sum(y * g) with respect to x and weight.
struct Values {
    Tensor y, dx, dw;
};

Values by_definition(const Layer& l, const Tensor& x, const Tensor& weight, const Tensor& g) {
    Values v = {zeros(g.shape(), {f64}), zeros(l.x, {f64}), zeros(l.weight, {f64})};
    const double* const px = x.data<double>();
    const double* const pw = weight.data<double>();
    const double* const pg = g.data<double>();
    for_each_product(l, g.shape(), [&](std::int64_t i, std::int64_t j, std::int64_t k) {
        v.y.data<double>()[k] += px[i] * pw[j];
        v.dx.data<double>()[i] += pg[k] * pw[j];
        v.dw.data<double>()[j] += pg[k] * px[i];
    });
    return v;
}

Values by_op(const Layer& l, const Tensor& x_given, const Tensor& weight_given, const Tensor& g) {
    Tensor x = x_given.detach(), weight = weight_given.detach();
    x.set_requires_grad(), weight.set_requires_grad();
    const Tensor y = conv2d(x, weight, {}, l.options);
    const std::vector<Tensor> grads = autograd::grad({y}, {x, weight}, {g});
    return {y.detach(), grads[0], grads[1]};
}

void expect_definition(const Layer& l) {
    SCOPED_TRACE(str(l));
    manual_seed(5);
    const Tensor x = randn(l.x, {f64}), weight = randn(l.weight, {f64});
    const Tensor g = randn(conv2d(x, weight, {}, l.options).shape(), {f64});
    const Values expected = by_definition(l, x, weight, g);
    for (const DType dtype : {f64, f32}) {
        const Values actual = by_op(l, to(x, dtype), to(weight, dtype), to(g, dtype));
        const double tolerance = dtype == f64 ? 1e-13 : 1e-5;
        expect_close(actual.y, expected.y, tolerance);
        expect_close(actual.dx, expected.dx, tolerance);
        expect_close(actual.dw, expected.dw, tolerance);
    }
}

TEST(Conv2d, MatchesDefinitionForSmallGeometries) {
    for (const std::int64_t kernel : {1, 2, 3})
        for (const std::int64_t stride : {1, 2, 3})
            for (const std::int64_t padding : {0, 1, 4})
                for (const std::int64_t dilation : {1, 2})
                    expect_definition({{2, 3, 6, 7},
                                       {5, 3, kernel, 3},
                                       {.stride = {stride, 1 + padding % 3},
                                        .padding = {padding, 2},
                                        .dilation = {dilation, 1}}});
}

TEST(Conv2d, MatchesDefinitionForSizesComputedInBlocks) {
    expect_definition(
        {{3, 2, 37, 41}, {3, 2, 3, 3}, {.padding = 1}});  // computed in blocks of rows of an image
    expect_definition(
        {{1, 70, 9, 11}, {33, 70, 3, 3}, {.padding = 1}});  // computed in blocks of channels
    expect_definition(
        {{9, 45, 4, 4}, {16, 45, 3, 3}, {.padding = 1}});  // computed in blocks of several images
    expect_definition({{2, 3, 40, 40}, {6, 3, 5, 5}, {.stride = 2, .padding = 2}});
    expect_definition({{1, 1, 30, 30}, {2, 1, 21, 22}, {.padding = 3}});  // a wide kernel
    expect_definition({{2, 64, 8, 8}, {32, 64, 1, 1}});
    expect_definition({{2, 40, 9, 9}, {20, 40, 1, 1}, {.stride = 2}});
}

// Images whose pixels fill vectors are read without a copy, and small images as one row.
TEST(Conv2d, MatchesDefinitionForKernelsOfOnePixel) {
    expect_definition({{3, 40, 4, 4}, {33, 40, 1, 1}});
    expect_definition({{5, 35, 3, 3}, {70, 35, 1, 1}});
    expect_definition({{2, 400, 4, 8}, {20, 400, 1, 1}});  // two blocks of channels
    expect_definition({{2, 48, 20, 20}, {40, 24, 1, 1}, {.groups = 2}});
    expect_definition({{2, 40, 4, 4}, {20, 40, 1, 1}, {.padding = 1}});
}

TEST(Conv2d, MatchesDefinitionForGroups) {
    expect_definition({{2, 6, 9, 8}, {12, 2, 3, 3}, {.padding = 1, .groups = 3}});
    expect_definition({{2, 12, 7, 7}, {12, 1, 3, 3}, {.stride = 2, .padding = 1, .groups = 12}});
    expect_definition({{1, 70, 6, 6}, {4, 35, 3, 3}, {.groups = 2}});
}

// Groups of up to 16 output channels are computed without packing.
TEST(Conv2d, MatchesDefinitionForFewOutputChannels) {
    expect_definition({{9, 1, 28, 28}, {6, 1, 5, 5}, {.padding = 2}});
    expect_definition({{3, 7, 5, 35}, {3, 7, 3, 2}, {.padding = {1, 2}}});  // a padded tile
    expect_definition({{2, 2, 20, 64}, {16, 2, 3, 3}, {.stride = 2, .padding = 1}});
    expect_definition({{2, 3, 19, 16}, {9, 3, 3, 3}, {.padding = 3, .dilation = 3}});
    expect_definition({{1, 2, 260, 47}, {2, 2, 3, 3}, {.padding = 1}});  // several blocks of rows
    // One and two channels per group, with full and with mostly empty vectors.
    expect_definition({{3, 5, 15, 31}, {5, 1, 3, 3}, {.padding = 1, .groups = 5}});
    expect_definition({{4, 6, 7, 7}, {6, 1, 5, 5}, {.stride = 2, .padding = 2, .groups = 6}});
    expect_definition({{2, 6, 16, 16}, {6, 2, 3, 3}, {.padding = 1, .groups = 3}});
}

// In f32, these layers are computed by Winograd's algorithm, except for the gradient of the weight
// of the first two, which have too few tiles.
TEST(Conv2d, MatchesDefinitionForKernelsOf3By3AndManyChannels) {
    expect_definition({{2, 35, 9, 11}, {37, 35, 3, 3}, {.padding = 1}});  // tiles that are cut
    expect_definition({{1, 32, 1, 1}, {16, 32, 3, 3}, {.padding = 1}});   // one pixel
    expect_definition({{40, 32, 6, 5}, {34, 32, 3, 3}, {.padding = {0, 2}}});
    expect_definition({{20, 64, 8, 8}, {68, 32, 3, 3}, {.padding = 1, .groups = 2}});
    expect_definition({{1, 32, 4, 300}, {33, 32, 3, 3}, {.padding = 5}});  // a wide image
    expect_definition({{3, 40, 40, 40}, {32, 40, 3, 3}, {.padding = 1}});  // two chunks of tiles
    // Odd pixels of the gradient of x are a correlation with stride 1 and adjacent taps.
    expect_definition({{2, 32, 9, 8}, {32, 32, 3, 3}, {.stride = 2, .padding = 1, .dilation = 2}});
}

TEST(Conv2d, AddsTheBiasForKernelsOf3By3AndManyChannels) {
    manual_seed(4);
    const Tensor x = randn({2, 32, 5, 6}, {f64}), w = randn({17, 32, 3, 3}, {f64});
    const Tensor bias = randn({17}, {f64});
    const auto f = [&](DType dtype) {
        return conv2d(to(x, dtype), to(w, dtype), to(bias, dtype), {.padding = 1});
    };
    expect_close(f(f32), f(f64), 1e-5);
}

TEST(Conv2d, PadsWithZeros) {
    const Tensor y = conv2d(ones({1, 1, 1, 1}), ones({1, 1, 1, 1}), full({1}, 0.5), {.padding = 3});
    EXPECT_EQ(y.shape(), (Shape{1, 1, 7, 7}));
    EXPECT_EQ(y.sum().item(), 1 + 49 * 0.5);
    EXPECT_EQ(y[0][0][3][3].item(), 1.5);
}

TEST(Conv2d, AcceptsHugeStrideForSingleWindow) {
    constexpr std::int64_t kFar = INT32_MAX;
    const Tensor x = randn({2, 3, 4, 5}), w = randn({4, 3, 3, 5});
    const Layer far = {x.shape(), w.shape(), {.stride = {2, kFar}}};
    const Layer near = {x.shape(), w.shape(), {.stride = {2, 1}}};
    const Tensor g = randn({2, 4, 1, 1});
    const Values actual = by_op(far, x, w, g), expected = by_op(near, x, w, g);
    expect_same_bits(actual.y, expected.y);
    expect_same_bits(actual.dx, expected.dx);
    expect_same_bits(actual.dw, expected.dw);
    const Tensor pixel = randn({2, 4, 1, 1});
    expect_same_bits(conv_transpose2d(pixel, w, {}, {.stride = kFar}),
                     conv_transpose2d(pixel, w, {}, {}));
}

TEST(Conv2d, GivesSameResultInChannelsLastAndForSeveralNumbersOfThreads) {
    const Layer layers[] = {{{6, 40, 20, 20}, {48, 40, 3, 3}, {.padding = 1}},
                            {{12, 35, 20, 20}, {32, 35, 3, 3}, {.padding = 1}},
                            {{16, 24, 6, 6}, {31, 24, 3, 3}, {.stride = 2, .padding = 1}},
                            {{6, 40, 8, 8}, {48, 40, 1, 1}},
                            {{3, 64, 20, 20}, {36, 64, 1, 1}},
                            {{18, 3, 30, 30}, {7, 3, 3, 3}, {.padding = 1}},
                            {{5, 9, 14, 14}, {9, 1, 3, 3}, {.padding = 1, .groups = 9}},
                            {{5, 32, 17, 17}, {64, 8, 3, 3}, {.padding = 1, .groups = 4}}};
    const int threads = kernels::num_threads();
    for (const Layer& l : layers) {
        SCOPED_TRACE(str(l));
        manual_seed(7);
        const Tensor x = randn(l.x), weight = randn(l.weight);
        const Tensor g = randn(conv2d(x, weight, {}, l.options).shape());
        const auto channels_last = [](const Tensor& t) {
            return t.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
        };
        kernels::set_num_threads(1);
        const Values expected = by_op(l, x, weight, g);
        for (const int n : {1, 2, 3, 8}) {
            SCOPED_TRACE(str(n, " threads"));
            kernels::set_num_threads(n);
            for (const Values& actual :
                 {by_op(l, x, weight, g),
                  by_op(l, channels_last(x), channels_last(weight), channels_last(g))}) {
                expect_same_bits(actual.y, expected.y);
                expect_same_bits(actual.dx, expected.dx);
                expect_same_bits(actual.dw, expected.dw);
            }
        }
    }
    kernels::set_num_threads(threads);
}

TEST(Conv2d, AccumulatesHalfPrecisionInF32) {
    manual_seed(3);
    for (const DType dtype : {f16, bf16})
        for (const std::int64_t channels : {8, 24}) {
            const Tensor x = to(randn({2, 20, 9, 9}), dtype);
            const Tensor w = to(randn({channels, 20, 3, 3}), dtype);
            const Tensor y = conv2d(x, w, {}, {.padding = 1});
            ASSERT_EQ(y.dtype(), dtype);
            const Tensor exact = conv2d(to(x, f32), to(w, f32), {}, {.padding = 1});
            expect_same_bits(y, to(exact, dtype));
        }
}

TEST(Conv2d, RunsInAutocastDType) {
    Tensor x = ones({1, 2, 4, 4}), w = ones({3, 2, 3, 3}), b = ones({3});
    w.set_requires_grad();
    const AutocastGuard guard(bf16);
    const Tensor y = conv2d(x, w, b);
    EXPECT_EQ(y.dtype(), bf16);
    EXPECT_EQ(conv_transpose2d(y, w).dtype(), bf16);
    to(y, f32).sum().backward();
    EXPECT_EQ(w.grad().dtype(), f32);
    EXPECT_EQ(w.grad().sum().item(), 3 * 2 * 9 * 4);
}

TEST(ConvTranspose2d, IsAdjointOfConv2d) {
    manual_seed(9);
    const Tensor x = randn({2, 6, 11, 9}, {f64}), w = randn({8, 3, 3, 4}, {f64});
    const Tensor y = conv2d(x, w, {}, {.stride = {2, 3}, .padding = {1, 2}, .groups = 2});
    const Tensor g = randn(y.shape(), {f64});
    const Tensor back =
        conv_transpose2d(g, w, {}, {.stride = {2, 3}, .padding = {1, 2}, .groups = 2});
    ASSERT_EQ(back.shape(), x.shape());
    EXPECT_NEAR(sum(y * g).item(), sum(back * x).item(), 1e-10);
}

// --- errors

Tensor f(const Shape& shape) { return ones(shape); }

TEST(Conv2d, ReportsShapeErrors) {
    const Tensor x = f({2, 3, 8, 8}), w = f({4, 3, 3, 3});
    expect_error<ShapeError>({"conv2d: ", "[N, C, H, W]", "[8, 8]"}, [&] { conv2d(f({8, 8}), w); });
    expect_error<ShapeError>({"conv2d: weight", "[4, 3]"}, [&] { conv2d(x, f({4, 3})); });
    expect_error<ShapeError>({"conv2d: ", "5 channels", "[2, 3, 8, 8]", "[4, 5, 3, 3]"}, [&] {
        conv2d(x, f({4, 5, 3, 3}));
    });
    expect_error<ShapeError>({"conv2d: ", "6 channels", "groups 2"},
                             [&] { conv2d(x, w, {}, {.groups = 2}); });
    expect_error<ShapeError>({"conv2d: ", "must be a multiple of groups", "groups 3"}, [&] {
        conv2d(x, f({4, 1, 3, 3}), {}, {.groups = 3});
    });
    expect_error<ShapeError>({"conv2d: bias must be [4]", "[3]"}, [&] { conv2d(x, w, f({3})); });
    expect_error<ShapeError>({"conv2d: the kernel is larger than the padded input", "[2, 3, 2, 8]"},
                             [&] {
                                 conv2d(f({2, 3, 2, 8}), w);
                             });
    expect_error<ShapeError>({"conv2d: the kernel is larger", "dilation [4, 4]"},
                             [&] { conv2d(x, w, {}, {.dilation = 4}); });
    expect_error<ShapeError>({"conv2d: ", "empty"}, [&] { conv2d(f({2, 3, 0, 8}), w); });
    expect_error<ShapeError>(
        {"conv2d: the padded images must have at most 2^40 pixels", "[2, 3, 8, 8]"},
        [&] { conv2d(x, w, {}, {.stride = INT32_MAX, .padding = INT32_MAX}); });
    expect_error<ShapeError>({"conv2d: weight must not be empty"}, [&] {
        conv2d(x, f({0, 3, 3, 3}));
    });
}

TEST(Conv2d, ReportsInvalidOptionsAndDTypes) {
    const Tensor x = f({2, 3, 8, 8}), w = f({4, 3, 3, 3});
    expect_error<ValueError>({"conv2d: stride must be from 1 to 2^31 - 1", "[1, 0]"}, [&] {
        conv2d(x, w, {}, {.stride = {1, 0}});
    });
    expect_error<ValueError>({"conv2d: padding", "[-1, -1]"},
                             [&] { conv2d(x, w, {}, {.padding = -1}); });
    expect_error<ValueError>({"conv2d: padding"},
                             [&] { conv2d(x, w, {}, {.padding = std::int64_t{1} << 62}); });
    expect_error<ValueError>({"conv2d: dilation", "[0, 1]"}, [&] {
        conv2d(x, w, {}, {.dilation = {0, 1}});
    });
    expect_error<ValueError>({"conv2d: groups", "0"}, [&] { conv2d(x, w, {}, {.groups = 0}); });
    expect_error<DTypeError>({"conv2d: ", "float64"}, [&] { conv2d(x, to(w, f64)); });
    expect_error<DTypeError>({"conv2d: ", "int64"}, [&] { conv2d(to(x, i64), to(w, i64)); });
    expect_error<UsageError>({"conv2d: "}, [&] { conv2d(x, Tensor()); });
}

TEST(ConvTranspose2d, ReportsInvalidArguments) {
    const Tensor x = f({2, 4, 8, 8}), w = f({4, 3, 3, 3});
    expect_error<ShapeError>({"conv_transpose2d: ", "5 channels"}, [&] {
        conv_transpose2d(x, f({5, 3, 3, 3}));
    });
    expect_error<ShapeError>({"conv_transpose2d: bias must be [6]", "[3]"},
                             [&] { conv_transpose2d(x, w, f({3}), {.groups = 2}); });
    expect_error<ValueError>({"conv_transpose2d: output_padding", "[2, 2]", "stride [2, 2]"}, [&] {
        conv_transpose2d(x, w, {}, {.stride = 2, .output_padding = 2});
    });
    expect_error<ShapeError>({"conv_transpose2d: the result would be empty", "[5, 5]"},
                             [&] { conv_transpose2d(x, w, {}, {.padding = 5}); });
    constexpr std::int64_t kFar = INT32_MAX;
    expect_error<ShapeError>(
        {"conv_transpose2d: the padded images must have at most 2^40 pixels"}, [&] {
            conv_transpose2d(f({2, 4, 1, 1}), w, {}, {.padding = kFar, .dilation = kFar});
        });
}

}  // namespace

}  // namespace axle::tests
