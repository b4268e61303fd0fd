// Convolutions of small images with many channels, compared with sums in f64.
#include "kernels/cpu/conv/pixel_rows.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/ops/conv.h"
#include "kernels/thread_pool.h"

namespace axle::kernels {
namespace {

struct Layer {
    std::int64_t images, channels, h, w, outputs, kernel_h, kernel_w;
    ConvAxis vertical = {}, horizontal = {};

    ConvGeometry geometry() const { return {vertical, horizontal}; }
    std::int64_t rows() const { return size(h, kernel_h, vertical); }
    std::int64_t columns() const { return size(w, kernel_w, horizontal); }
    static std::int64_t size(std::int64_t source, std::int64_t kernel, const ConvAxis& axis) {
        return (source + 2 * axis.padding - axis.dilation * (kernel - 1) - 1) / axis.stride + 1;
    }
};

constexpr ConvAxis kHalf = {.stride = 2}, kPadded = {.padding = 1},
                   kHalfPadded = {.stride = 2, .padding = 1},
                   kWide = {.stride = 2, .padding = 2, .dilation = 2};
const Layer kLayers[] = {
    {6, 144, 2, 2, 128, 1, 1},
    {2, 128, 4, 3, 160, 1, 1},
    {5, 128, 4, 4, 144, 1, 1, kHalf, kHalf},
    {17, 128, 4, 1, 128, 1, 1, {.stride = 1}, {.stride = 5}},
    {5, 128, 2, 2, 144, 3, 3, kPadded, kPadded},
    {2, 144, 8, 8, 128, 3, 3, kHalfPadded, kHalfPadded},
    {5, 128, 8, 8, 128, 5, 5, kWide, kWide},
};

template <class T>
class Images {
  public:
    // Images [N, C, H, W] with numbers in [-1, 1), or with zeros. If `channels_last`, channels are
    // innermost in memory.
    Images(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, unsigned seed = 0,
           bool channels_last = false)
        : values_(static_cast<std::size_t>(n * c * h * w)) {
        view_.data = values_.data(), view_.dtype = dtype_of<T>, view_.ndim = 4;
        const std::int64_t shape[] = {n, c, h, w};
        for (int d = 0; d < 4; ++d) view_.shape[d] = shape[d];
        view_.stride[0] = c * h * w, view_.stride[1] = channels_last ? 1 : h * w;
        view_.stride[3] = channels_last ? c : 1, view_.stride[2] = w * view_.stride[3];
        if (seed == 0) return;
        for (T& value : values_) {
            seed = 1664525 * seed + 1013904223;
            value = static_cast<T>(seed >> 8) / T(0x1p23) - T(1);
        }
    }
    Images(const Images&) = delete;
    Images& operator=(const Images&) = delete;

    const View& view() const { return view_; }
    const std::vector<T>& values() const { return values_; }
    T& at(std::int64_t n, std::int64_t c, std::int64_t i, std::int64_t j) const {
        return view_.template as<T>()[n * view_.stride[0] + c * view_.stride[1] +
                                      i * view_.stride[2] + j * view_.stride[3]];
    }

  private:
    std::vector<T> values_;
    View view_;
};

// Calls f(n, o, r, q, c, i, j, row, column) for every term of the convolution: x[n, c, row, column]
// w[o, c, i, j] is a term of y[n, o, r, q].
template <class F>
void for_each_term(const Layer& l, F&& f) {
    for (std::int64_t n = 0; n < l.images; ++n)
        for (std::int64_t r = 0; r < l.rows(); ++r)
            for (std::int64_t q = 0; q < l.columns(); ++q)
                for (std::int64_t i = 0; i < l.kernel_h; ++i)
                    for (std::int64_t j = 0; j < l.kernel_w; ++j) {
                        const ConvAxis &v = l.vertical, &h = l.horizontal;
                        const std::int64_t row = r * v.stride - v.padding + i * v.dilation;
                        const std::int64_t column = q * h.stride - h.padding + j * h.dilation;
                        if (row < 0 || row >= l.h || column < 0 || column >= l.w) continue;
                        for (std::int64_t o = 0; o < l.outputs; ++o)
                            for (std::int64_t c = 0; c < l.channels; ++c)
                                f(n, o, r, q, c, i, j, row, column);
                    }
}

template <class T>
void expect_near(const Images<T>& found, const Images<double>& sums, const Images<double>& sizes,
                 const std::string& what) {
    const double tolerance = sizeof(T) == 4 ? 1e-6 : 1e-15;
    const View& v = found.view();
    for (std::int64_t n = 0; n < v.shape[0]; ++n)
        for (std::int64_t c = 0; c < v.shape[1]; ++c)
            for (std::int64_t i = 0; i < v.shape[2]; ++i)
                for (std::int64_t j = 0; j < v.shape[3]; ++j)
                    ASSERT_NEAR(static_cast<double>(found.at(n, c, i, j)), sums.at(n, c, i, j),
                                tolerance * sizes.at(n, c, i, j))
                        << what << " at " << n << ", " << c << ", " << i << ", " << j;
}

template <class T>
class PixelRows : public testing::Test {
  protected:
    void TearDown() override { set_num_threads(before_); }

  private:
    int before_ = num_threads();
};
using PixelRowTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(PixelRows, PixelRowTypes);

TYPED_TEST(PixelRows, MatchSumsInF64ForAllPassesLayoutsAndNumbersOfThreads) {
    using T = TypeParam;
    for (const Layer& l : kLayers) {
        const std::int64_t rows = l.rows(), columns = l.columns();
        const Images<T> bias(1, 1, 1, l.outputs, 4);
        ConstView of_bias = bias.view();
        of_bias.ndim = 1, of_bias.shape[0] = l.outputs, of_bias.stride[0] = 1;
        for (const bool channels_last : {false, true}) {
            const Images<T> w(l.outputs, l.channels, l.kernel_h, l.kernel_w, 2, channels_last);
            const Images<T> x(l.images, l.channels, l.h, l.w, 1, channels_last);
            const Images<T> dy(l.images, l.outputs, rows, columns, 3, channels_last);
            ASSERT_TRUE(suits_pixel_rows(l.geometry(), x.view(), w.view(), dy.view()));

            Images<double> y_sums(l.images, l.outputs, rows, columns),
                y_sizes(l.images, l.outputs, rows, columns);
            Images<double> dx_sums(l.images, l.channels, l.h, l.w),
                dx_sizes(l.images, l.channels, l.h, l.w);
            Images<double> dw_sums(l.outputs, l.channels, l.kernel_h, l.kernel_w),
                dw_sizes(l.outputs, l.channels, l.kernel_h, l.kernel_w);
            const auto add = [](double term, double& sum, double& size) {
                sum += term, size += std::abs(term);
            };
            for (std::int64_t n = 0; n < l.images; ++n)
                for (std::int64_t o = 0; o < l.outputs; ++o)
                    for (std::int64_t p = 0; p < rows * columns; ++p)
                        add(static_cast<double>(bias.at(0, 0, 0, o)),
                            y_sums.at(n, o, p / columns, p % columns),
                            y_sizes.at(n, o, p / columns, p % columns));
            for_each_term(l, [&](auto n, auto o, auto r, auto q, auto c, auto i, auto j, auto row,
                                 auto column) {
                const double from = static_cast<double>(x.at(n, c, row, column));
                const double weight = static_cast<double>(w.at(o, c, i, j));
                const double gradient = static_cast<double>(dy.at(n, o, r, q));
                add(from * weight, y_sums.at(n, o, r, q), y_sizes.at(n, o, r, q));
                add(gradient * weight, dx_sums.at(n, c, row, column),
                    dx_sizes.at(n, c, row, column));
                add(gradient * from, dw_sums.at(o, c, i, j), dw_sizes.at(o, c, i, j));
            });

            std::vector<std::vector<T>> first;
            for (const int threads : {1, 2, 5}) {
                set_num_threads(threads);
                const std::string what = std::to_string(&l - kLayers) + ", channels last " +
                                         std::to_string(channels_last) + ", threads " +
                                         std::to_string(threads);
                Cpu cpu;
                const Images<T> y(l.images, l.outputs, rows, columns, 5, channels_last);
                conv2d(cpu, x.view(), w.view(), of_bias, l.geometry(), y.view());
                expect_near(y, y_sums, y_sizes, "y of layer " + what);
                const Images<T> dx(l.images, l.channels, l.h, l.w, 6, channels_last);
                conv2d_transposed(cpu, dy.view(), w.view(), {}, l.geometry(), dx.view());
                expect_near(dx, dx_sums, dx_sizes, "dx of layer " + what);
                const Images<T> dw(l.outputs, l.channels, l.kernel_h, l.kernel_w, 7, channels_last);
                conv2d_weight_gradient(cpu, dy.view(), x.view(), l.geometry(), dw.view());
                expect_near(dw, dw_sums, dw_sizes, "dw of layer " + what);
                if (threads == 1) first = {y.values(), dx.values(), dw.values()};
                EXPECT_EQ(y.values(), first[0]) << what;
                EXPECT_EQ(dx.values(), first[1]) << what;
                EXPECT_EQ(dw.values(), first[2]) << what;
            }
        }
    }
}

TYPED_TEST(PixelRows, AreNotUsedIfTheUnfoldedImagesWouldNeedMuchMemory) {
    const Layer l = {32, 512, 4, 4, 512, 3, 3, kHalfPadded, kHalfPadded};
    const Images<TypeParam> x(1, l.channels, l.h, l.w), w(l.outputs, l.channels, 3, 3);
    const Images<TypeParam> y(1, l.outputs, l.rows(), l.columns());
    const auto suits = [&](std::int64_t images) {
        View many_x = x.view(), many_y = y.view();
        many_x.shape[0] = many_y.shape[0] = images;
        return suits_pixel_rows(l.geometry(), many_x, w.view(), many_y);
    };
    EXPECT_TRUE(suits(16));
    EXPECT_TRUE(suits(200));
    EXPECT_FALSE(suits(400));
}

TYPED_TEST(PixelRows, AddABiasToPixelsThatATransposedConvolutionSkips) {
    using T = TypeParam;
    const Images<T> x(5, 128, 2, 2, 1), w(128, 144, 1, 1, 2), bias(1, 1, 1, 144, 3);
    const Images<T> y(5, 144, 4, 4, 4);
    ConstView of_bias = bias.view();
    of_bias.ndim = 1, of_bias.shape[0] = 144, of_bias.stride[0] = 1;
    Cpu cpu;
    conv2d_transposed(cpu, x.view(), w.view(), of_bias, {kHalf, kHalf}, y.view());
    for (std::int64_t c = 0; c < 144; ++c) {
        EXPECT_EQ(y.at(4, c, 1, 2), bias.at(0, 0, 0, c));
        double sum = static_cast<double>(bias.at(0, 0, 0, c));
        for (std::int64_t k = 0; k < 128; ++k)
            sum += static_cast<double>(x.at(4, k, 1, 1)) * static_cast<double>(w.at(k, c, 0, 0));
        EXPECT_NEAR(static_cast<double>(y.at(4, c, 2, 2)), sum, 1e-4);
    }
}

}  // namespace
}  // namespace axle::kernels
