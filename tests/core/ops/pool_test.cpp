// Tests pooling, resizing, padding and flipping: values computed by hand, unusual windows,
// channels-last layout, and errors.
#include <cmath>
#include <limits>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "kernels/thread_pool.h"
#include "tests/close.h"
#include "tests/op_case.h"

namespace axle::tests {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor ramp(const Shape& shape, DType dtype = f32) {
    return reshape(arange(numel(shape), {dtype}), shape);
}

TEST(MaxPool, ReturnsIndexOfFirstMaximumOnTies) {
    const Tensor x = tensor({3.0, 7, 7,  //
                             7, 7, 1,    //
                             0, 0, 0},
                            {1, 3, 3});
    const auto [values, positions] = max_pool2d_with_indices(x, 2, {.stride = 1});
    EXPECT_EQ(values.to_vector(), (std::vector<double>{7, 7, 7, 7}));
    EXPECT_EQ(positions.to_vector(), (std::vector<double>{1, 1, 3, 4}));
    EXPECT_EQ(positions.dtype(), i64);
}

TEST(MaxPool, PropagatesNanWithinWindow) {
    for (const std::int64_t width : {8, 40}) {
        for (const DType dtype : {f64, f32, bf16}) {
            Tensor x = to(ramp({1, 4, width}), dtype);
            x.select(1, 2).narrow(1, 5, 1).fill_(kNan);
            const auto [values, positions] = max_pool2d_with_indices(x, 2);
            const auto y = values.to_vector(), at = positions.to_vector();
            for (std::size_t i = 0; i < y.size(); ++i) {
                const bool hit = i == static_cast<std::size_t>(width / 2 + 2);
                EXPECT_EQ(std::isnan(y[i]), hit) << "window " << i << " of " << dtype;
                if (!hit) continue;
                EXPECT_EQ(at[i], static_cast<double>(2 * width + 5));
            }
        }
    }
}

// In f32, windows of 2 x 2 have a kernel of their own; in f64, elements are compared one by one.
TEST(MaxPool, FindsTheSameWindowsOf2By2InF32AsInF64) {
    const double low = -std::numeric_limits<double>::infinity();
    const CloseOptions exact = {.rtol = 0, .atol = 0, .equal_nan = true};
    const double values[] = {low, -1, 2, 2, 0.5, kNan, low, 3, low, low};
    for (const std::int64_t width : {2, 5, 31, 32, 33, 70}) {
        SCOPED_TRACE(width);
        Tensor x = empty({3, 7, width}, {f64});
        for (std::int64_t i = 0; i < x.numel(); ++i)
            x.data<double>()[i] = values[i * i % 101 % std::ssize(values)];
        const auto [expected, at] = max_pool2d_with_indices(x, 2);
        const auto [actual, actual_at] = max_pool2d_with_indices(to(x, f32), 2);
        EXPECT_EQ(actual_at.to_vector(), at.to_vector());
        EXPECT_TRUE(allclose(actual, to(expected, f32), exact));
        EXPECT_TRUE(allclose(max_pool2d(to(x, f32), 2), to(expected, f32), exact));
    }
}

TEST(MaxPool, IgnoresPadding) {
    const Tensor y = max_pool2d(full({1, 1, 3, 5}, -4.0), 3, {.stride = 1, .padding = 1});
    expect_same_bits(y, full({1, 1, 3, 5}, -4.0));
    const double low = -std::numeric_limits<double>::infinity();
    const auto [values, positions] =
        max_pool2d_with_indices(full({1, 2, 3}, low), 3, {.stride = 2, .padding = 1});
    EXPECT_EQ(values.to_vector(), (std::vector<double>{low, low}));
    EXPECT_EQ(positions.to_vector(), (std::vector<double>{0, 1}));
}

// A dilated window can contain no element. The returned position must still be inside the plane.
TEST(MaxPool, ReturnsValidPositionForEmptyWindow) {
    Tensor x = ramp({1, 1, 1}).set_requires_grad();
    const auto [y, positions] = max_pool2d_with_indices(x, 2, {.padding = 1, .dilation = 2});
    EXPECT_EQ(y.item(), -std::numeric_limits<double>::infinity());
    EXPECT_EQ(positions.to_vector(), std::vector<double>(1, 0));
    y.sum().backward();
    EXPECT_EQ(x.grad().shape(), x.shape());
}

// The first input has 3 elements, and its window reads positions -1 and 3. The second input has 4
// elements, and its two windows read positions -1 and 3, and 0 and 4.
TEST(MaxPool, ReadsOnlyDilatedPositions) {
    const double low = -std::numeric_limits<double>::infinity();
    const MaxPoolOptions options = {.stride = 1, .padding = Size2(0, 1), .dilation = Size2(1, 4)};
    EXPECT_EQ(max_pool2d(ramp({1, 1, 3}), {1, 2}, options).to_vector(),
              std::vector<double>(1, low));
    EXPECT_EQ(max_pool2d(ramp({1, 1, 4}), {1, 2}, options).to_vector(),
              (std::vector<double>{3, 0}));
}

TEST(MaxPool, ComparesIntegersExactlyAndReturnsTheLowestIntegerForEmptyWindows) {
    const std::int64_t big = std::int64_t{1} << 60;
    const auto [y, at] =
        max_pool2d_with_indices(tensor({big, big + 1, big - 1, big}, {1, 2, 2}), 2, {.padding = 1});
    EXPECT_EQ(sum(eq(y, tensor({big, big + 1, big - 1, big}, {1, 2, 2}))).item(), 4);
    EXPECT_EQ(at.to_vector(), (std::vector<double>{0, 1, 2, 3}));
    // The lowest number is not mistaken for padding, and empty windows have the lowest number.
    const auto [zero, position] =
        max_pool2d_with_indices(zeros({1, 3, 3}, {u8}), 3, {.stride = 2, .padding = 1});
    EXPECT_EQ(zero.dtype(), u8);
    EXPECT_EQ(position.to_vector(), (std::vector<double>{0, 1, 3, 4}));
    EXPECT_EQ(max_pool2d(ones({1, 1, 1}, {i32}), 2, {.padding = 1, .dilation = 2}).item(),
              INT32_MIN);
}

TEST(MaxPool, DropsWindowsThatStartAfterInputInCeilMode) {
    const Tensor x = ramp({1, 5, 5});
    EXPECT_EQ(max_pool2d(x, 2).shape(), (Shape{1, 2, 2}));
    EXPECT_EQ(max_pool2d(x, 2, {.ceil_mode = true}).shape(), (Shape{1, 3, 3}));
    // The window at 5 would start after the last element.
    EXPECT_EQ(max_pool2d(x, 2, {.stride = 3, .padding = 1, .ceil_mode = true}).shape(),
              (Shape{1, 2, 2}));
    EXPECT_EQ(max_pool2d(ramp({1, 2, 2}), 3, {.stride = 2, .ceil_mode = true}).to_vector(),
              std::vector<double>(1, 3));
}

TEST(MaxPool, SumsGradientsOfOverlappingWindows) {
    const Tensor x = tensor({0.0, 0, 0,  //
                             0, 9, 0,    //
                             0, 0, 0},
                            {1, 3, 3})
                         .set_requires_grad();
    max_pool2d(x, 2, {.stride = 1}).backward(tensor({1.0, 2, 4, 8}, {1, 2, 2}));
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0, 0, 0, 0, 15, 0, 0, 0, 0}));
}

TEST(AvgPool, DividesByNumberOfCountedElementsOrByDivisorOverride) {
    const Tensor x = ones({1, 3, 3});
    const auto corner = [&](const AvgPoolOptions& options) {
        return avg_pool2d(x, 2, options).to_vector()[0];
    };
    EXPECT_EQ(corner({.padding = 1}), 0.25);
    EXPECT_EQ(corner({.padding = 1, .count_include_pad = false}), 1);
    EXPECT_EQ(corner({.padding = 1, .divisor_override = 8}), 0.125);
    // Elements beyond the padding are not counted.
    EXPECT_EQ(avg_pool2d(x, 2, {.ceil_mode = true}).to_vector(), std::vector<double>(4, 1));
}

TEST(AdaptivePool, UsesOverlappingWindows) {
    const Tensor x = ramp({1, 1, 5});
    EXPECT_EQ(adaptive_avg_pool2d(x, {1, 3}).to_vector(), (std::vector<double>{0.5, 2, 3.5}));
    EXPECT_EQ(adaptive_max_pool2d(x, {1, 2}).to_vector(), (std::vector<double>{2, 4}));
    EXPECT_EQ(adaptive_avg_pool2d(ramp({1, 1, 2}), {2, 3}).to_vector(),
              (std::vector<double>{0, 0.5, 1, 0, 0.5, 1}));
}

// An f32 sum of 18 million ones would stop at 2^24.
TEST(AdaptivePool, ComputesExactMeanOfLargePlane) {
    EXPECT_EQ(adaptive_avg_pool2d(expand(ones({1, 1, 1}), {1, 4000, 4500}), 1).item(), 1);
}

TEST(Pooling, GivesTheSameBitsInChannelsLastLayout) {
    const Tensor x = randn({2, 9, 11, 5});
    const Tensor seen = permute(x, {0, 3, 1, 2}), dense = contiguous(seen);
    expect_same_bits(max_pool2d(seen, 3, {.stride = 2}), max_pool2d(dense, 3, {.stride = 2}));
    expect_same_bits(avg_pool2d(seen, 2), avg_pool2d(dense, 2));
    expect_same_bits(adaptive_avg_pool2d(seen, 1), adaptive_avg_pool2d(dense, 1));
}

TEST(Interpolate, GivesTheSameBitsInChannelsLastLayout) {
    const Tensor seen = permute(randn({2, 9, 11, 5}), {0, 3, 1, 2}), dense = contiguous(seen);
    const InterpolateOptions twice = {.scale_factor = 2, .mode = Interpolation::bilinear};
    expect_same_bits(interpolate(seen, twice), interpolate(dense, twice));
}

TEST(Pooling, ReportsInvalidArguments) {
    const Tensor x = ones({2, 3, 4, 5});
    expect_error<ShapeError>({"max_pool2d: ", "[N, C, H, W]", "[4, 5]"}, [] {
        max_pool2d(ones({4, 5}), 2);
    });
    expect_error<ShapeError>({"avg_pool2d: ", "[2, 0, 4, 4]"}, [] {
        avg_pool2d(ones({2, 0, 4, 4}), 2);
    });
    expect_error<DTypeError>({"max_pool2d: ", "bool"}, [] {
        max_pool2d(ones({1, 4, 4}, {boolean}), 2);
    });
    expect_error<DTypeError>({"avg_pool2d: ", "int64"}, [] {
        avg_pool2d(ones({1, 4, 4}, {i64}), 2);
    });
    expect_error<ShapeError>({"max_pool2d: ", "larger than the padded input", "[5, 2]"}, [&] {
        max_pool2d(x, {5, 2});
    });
    for (const int dilation : {1, 2})  // PyTorch also ignores dilation here
        expect_error<ValueError>({"max_pool2d: ", "at most half", "[2, 2]", "[3, 3]"},
                                 [&] { max_pool2d(x, 3, {.padding = 2, .dilation = dilation}); });
    expect_error<ValueError>({"avg_pool2d: ", "at most half"}, [&] {
        avg_pool2d(x, {2, 3}, {.padding = 2});
    });
    expect_error<ValueError>({"max_pool2d: the kernel", "[0, 2]"}, [&] { max_pool2d(x, {0, 2}); });
    expect_error<ValueError>({"max_pool2d: the stride", "[1, 0]"},
                             [&] { max_pool2d(x, 2, {.stride = Size2(1, 0)}); });
    expect_error<ValueError>({"max_pool2d: the dilation", "[-1, -1]"},
                             [&] { max_pool2d(x, 2, {.dilation = -1}); });
    expect_error<ValueError>({"max_pool2d: ", "must not be negative", "[-1, -1]"},
                             [&] { max_pool2d(x, 2, {.padding = -1}); });
    expect_error<ValueError>({"max_pool2d: the kernel", "2^31"}, [&] { max_pool2d(x, INT64_MAX); });
    expect_error<ValueError>({"avg_pool2d: divisor_override"},
                             [&] { avg_pool2d(x, 2, {.divisor_override = 0}); });
    expect_error<ValueError>({"adaptive_avg_pool2d: the size", "[0, 1]"}, [&] {
        adaptive_avg_pool2d(x, {0, 1});
    });
    expect_error<ShapeError>({"adaptive_max_pool2d: ", "[3]"},
                             [&] { adaptive_max_pool2d(ones({3}), 1); });
}

TEST(Interpolate, KeepsCornersWithAlignCorners) {
    const Tensor x = ramp({1, 1, 2, 3});
    const Tensor y = interpolate(
        x, {.size = Size2(4, 5), .mode = Interpolation::bilinear, .align_corners = true});
    const auto v = y.to_vector();
    EXPECT_EQ((std::vector<double>{v[0], v[4], v[15], v[19]}), (std::vector<double>{0, 2, 3, 5}));
}

TEST(Interpolate, RepeatsElementsInNearestMode) {
    EXPECT_EQ(interpolate(ramp({1, 1, 1, 2}), {.scale_factor = 2}).to_vector(),
              (std::vector<double>{0, 0, 1, 1, 0, 0, 1, 1}));
    const double infinity = std::numeric_limits<double>::infinity();
    const auto y = interpolate(tensor({infinity, kNan, 1}, {1, 1, 1, 3}), {.size = Size2(1, 6)});
    EXPECT_EQ(y.to_vector()[1], infinity);
    EXPECT_EQ(y.to_vector()[4], 1);
}

TEST(Interpolate, ReportsInvalidArguments) {
    const Tensor x = ones({2, 3, 4, 5});
    expect_error<ValueError>({"interpolate: ", "neither"}, [&] { interpolate(x, {}); });
    expect_error<ValueError>({"interpolate: ", "both"},
                             [&] { interpolate(x, {.size = 2, .scale_factor = 2}); });
    expect_error<ValueError>({"interpolate: align_corners"},
                             [&] { interpolate(x, {.size = 2, .align_corners = true}); });
    expect_error<ShapeError>({"interpolate: ", "dimension 2", ": 0 from x [2, 3, 4, 5]"},
                             [&] { interpolate(x, {.size = Size2(0, 3)}); });
    expect_error<ShapeError>({"interpolate: ", "dimension 2", ": 0 from x [2, 3, 4, 5]"},
                             [&] { interpolate(x, {.scale_factor = 0.2}); });
    for (const double scale : {-1.0, 0.0, kNan, 1e300})
        expect_error<ValueError>({"interpolate: scale_factor"},
                                 [&] { interpolate(x, {.scale_factor = scale}); });
    expect_error<ShapeError>({"interpolate: ", "[N, C, H, W]", "[4, 5]"}, [] {
        interpolate(ones({4, 5}), {.size = 2});
    });
    expect_error<ShapeError>(
        {"interpolate: mode bilinear needs x with 4 dimensions: x [3, 4, 5]"}, [] {
            interpolate(ones({3, 4, 5}), {.size = 2, .mode = Interpolation::bilinear});
        });
    expect_error<ShapeError>({"interpolate: size has 2 numbers, but x has 1 dimensions"}, [] {
        interpolate(ones({3, 4, 5}), {.size = Size2(2, 2)});
    });
    expect_error<ValueError>({"interpolate: recompute_scale_factor needs scale_factor"},
                             [&] { interpolate(x, {.size = 2, .recompute_scale_factor = true}); });
    expect_error<ValueError>(
        {"interpolate: antialias needs mode bilinear or bicubic: mode is area"},
        [&] { interpolate(x, {.size = 2, .mode = Interpolation::area, .antialias = true}); });
    expect_error<DTypeError>({"interpolate: ", "int64"}, [] {
        interpolate(ones({1, 1, 4, 5}, {i64}), {.size = 2});
    });
}

TEST(Pad, PadsInAllModesAndCropsWithNegativePadding) {
    const Tensor x = tensor({1.0, 2, 3, 4}, {4});
    EXPECT_EQ(pad(x, {1, 2}, PadMode::constant, 9).to_vector(),
              (std::vector<double>{9, 1, 2, 3, 4, 9, 9}));
    EXPECT_EQ(pad(x, {3, 2}, PadMode::reflect).to_vector(),
              (std::vector<double>{4, 3, 2, 1, 2, 3, 4, 3, 2}));
    EXPECT_EQ(pad(x, {2, 5}, PadMode::replicate).to_vector(),
              (std::vector<double>{1, 1, 1, 2, 3, 4, 4, 4, 4, 4, 4}));
    EXPECT_EQ(pad(x, {4, 1}, PadMode::circular).to_vector(),
              (std::vector<double>{1, 2, 3, 4, 1, 2, 3, 4, 1}));
    EXPECT_EQ(pad(x, {-1, -2}).to_vector(), std::vector<double>(1, 2));
}

TEST(Pad, CopiesItsInputEvenWithoutPadding) {
    for (const PadMode mode : {PadMode::constant, PadMode::reflect, PadMode::circular}) {
        Tensor x = ones({2, 3});
        const Tensor y = pad(x, {0, 0, 0, 0}, mode), part = pad(x, {-1, 0, 0, 0}, mode);
        x.fill_(7);
        expect_same_bits(y, ones({2, 3}));
        expect_same_bits(part, ones({2, 2}));
    }
}

TEST(Pad, ReportsInvalidArguments) {
    const Tensor x = ones({2, 3});
    expect_error<ShapeError>({"pad: ", "two numbers for each", "[1]", "[2, 3]"},
                             [&] { pad(x, {1}); });
    expect_error<ShapeError>({"pad: ", "[1, 1, 1, 1, 1, 1]"}, [&] { pad(x, {1, 1, 1, 1, 1, 1}); });
    for (const std::int64_t size : {INT64_MAX, INT64_MIN})
        expect_error<ValueError>({"pad: ", "2^31", "922337203685477580"}, [&] {
            pad(x, {size, size});
        });
    expect_error<ShapeError>({"pad: cannot crop more than the size", "[-2, -2]"}, [&] {
        pad(x, {-2, -2});
    });
    expect_error<ShapeError>({"pad: cannot crop more than the size", "[-4, 9]"}, [&] {
        pad(x, {-4, 9});
    });
    expect_error<ShapeError>({"pad: reflect mode supports a padding of at most 2", "[3, 0]"}, [&] {
        pad(x, {3, 0}, PadMode::reflect);
    });
    expect_error<ShapeError>({"pad: circular mode supports a padding of at most 3", "[0, 4]"}, [&] {
        pad(x, {0, 4}, PadMode::circular);
    });
    expect_error<ShapeError>({"pad: replicate mode supports a padding of at most 0"}, [] {
        pad(ones({2, 0}), {1, 0}, PadMode::replicate);
    });
    expect_error<ValueError>({"pad: only constant mode supports a value", "5"}, [&] {
        pad(x, {1, 1}, PadMode::reflect, 5);
    });
}

TEST(Flip, ReversesGivenDimensionsAndRejectsInvalidDimensions) {
    const Tensor x = ramp({2, 3});
    EXPECT_EQ(flip(x, {1}).to_vector(), (std::vector<double>{2, 1, 0, 5, 4, 3}));
    EXPECT_EQ(flip(x, {0, -1}).to_vector(), (std::vector<double>{5, 4, 3, 2, 1, 0}));
    EXPECT_EQ(flip(transpose(x, 0, 1), {0}).to_vector(), (std::vector<double>{2, 5, 1, 4, 0, 3}));
    expect_error<ValueError>({"flip: duplicate dimension", "[1, -1]"}, [&] { flip(x, {1, -1}); });
    expect_error<IndexError>({"flip: ", "2"}, [&] { flip(x, {2}); });
}

}  // namespace

}  // namespace axle::tests
