// The gradient of a convolution's weight without cuDNN, which is a matrix product of dy and x. The
// rows of the result are the output channels of a group, and its columns are the taps. Each result
// is a sum over the pixels of all images. There are few tiles with long sums, so the pixels are
// split into parts; the number of parts depends only on the shapes. The sums of the parts are
// stored in scratch memory, and a second kernel adds them in order.
#include "kernels/cuda/conv/conv.cuh"
#include "kernels/cuda/conv/cudnn_conv.h"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/conv.h"

namespace axle::kernels {
namespace {

template <class T>
struct Product {
    const T* dy;
    const T* x;
    ImageSteps dy_step, x_step;
    std::int64_t rows, channels, columns;  // numbers per group
    std::int64_t pixels, part;             // number of pixels in total and per part
    std::int64_t height, width;            // dimensions of x
    ConvAxis h, w;
    std::int64_t row_tiles, column_tiles, tiles;  // `tiles` counts all parts and groups
    std::int64_t groups, parts;
    TripleIndex tap, pixel;

    Product(const ConstView& dy_, const ConstView& x_, const ConvGeometry& geometry, const View& dw)
        : dy(dy_.as<T>()),
          x(x_.as<T>()),
          dy_step(dy_),
          x_step(x_),
          rows(dw.shape[0] / geometry.groups),
          channels(dw.shape[1]),
          columns(channels * dw.shape[2] * dw.shape[3]),
          pixels(dy_.shape[0] * dy_.shape[2] * dy_.shape[3]),
          height(x_.shape[2]),
          width(x_.shape[3]),
          h(geometry.h),
          w(geometry.w),
          row_tiles((rows + kConvTile - 1) / kConvTile),
          column_tiles((columns + kConvTile - 1) / kConvTile),
          groups(geometry.groups),
          tap(dw.shape[2], dw.shape[3]),
          pixel(dy_.shape[2], dy_.shape[3]) {
        // Splits the pixels into parts, so that a large GPU has enough blocks and a part has at
        // least about kMin pixels.
        constexpr std::int64_t kBlocks = 1024, kMin = 512;
        const std::int64_t of_result = row_tiles * column_tiles * groups;
        const std::int64_t most = (pixels + kMin - 1) / kMin;
        const std::int64_t wanted =
            std::clamp<std::int64_t>(kBlocks / of_result, 1, std::max<std::int64_t>(most, 1));
        part = ((pixels + wanted - 1) / wanted + kConvDepth - 1) / kConvDepth * kConvDepth;
        parts = part == 0 ? 1 : (pixels + part - 1) / part;
        tiles = of_result * parts;
    }
};

// The offsets of a pixel or a column in dy and x, and its coordinates in x.
struct Place {
    std::int64_t dy, x;  // dy is set for pixels only
    std::int64_t down, right;
    bool exists;
};

// Computes partial_sums[part, o, column].
template <class T>
__global__ void __launch_bounds__(kConvThreads)
    correlate_parts(Product<T> p, Compute<T>* partial_sums) {
    using C = Compute<T>;
    __shared__ ConvFactors<C> factors;
    __shared__ Place pixels[kConvDepth], columns[kConvTile];
    const int thread = static_cast<int>(threadIdx.x);
    // This thread loads the term `term` of the rows and the columns line, line + kLineStep, ...
    const int term = thread % kConvDepth, line = thread / kConvDepth;
    constexpr int kLineStep = kConvThreads / kConvDepth;

    for (std::int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        std::int64_t rest = tile / p.row_tiles;
        const std::int64_t first_row = (tile - rest * p.row_tiles) * kConvTile;
        const std::int64_t before = rest;
        rest /= p.column_tiles;
        const std::int64_t first_column = (before - rest * p.column_tiles) * kConvTile;
        const std::int64_t part = rest / p.groups, group = rest - part * p.groups;
        const std::int64_t begin = part * p.part, end = std::min(begin + p.part, p.pixels);
        const T* dy = p.dy + (group * p.rows + first_row) * p.dy_step.c;

        const auto find_pixels = [&](std::int64_t first) {
            if (thread >= kConvDepth) return;
            const auto [n, i, j] = p.pixel(first + thread);
            pixels[thread] = {
                n * p.dy_step.n + i * p.dy_step.h + j * p.dy_step.w,
                n * p.x_step.n,
                i * p.h.stride - p.h.padding,
                j * p.w.stride - p.w.padding,
                first + thread < end,
            };
        };
        if (thread < kConvTile) {
            const auto [c, i, j] = p.tap(first_column + thread);
            columns[thread] = {0, (group * p.channels + c) * p.x_step.c, i * p.h.dilation,
                               j * p.w.dilation, first_column + thread < p.columns};
        }
        C a[kConvLoads], b[kConvLoads];
        const auto fetch = [&] {
            const Place pixel = pixels[term];
#pragma unroll
            for (int l = 0; l < kConvLoads; ++l) {
                const int row = line + l * kLineStep;
                a[l] = 0;
                if (pixel.exists && first_row + row < p.rows)
                    a[l] = static_cast<C>(dy[row * p.dy_step.c + pixel.dy]);
            }
#pragma unroll
            for (int l = 0; l < kConvLoads; ++l) {
                const Place& column = columns[line + l * kLineStep];
                const std::int64_t i = pixel.down + column.down, j = pixel.right + column.right;
                b[l] = 0;
                if (pixel.exists && column.exists && i >= 0 && i < p.height && j >= 0 &&
                    j < p.width)
                    b[l] =
                        static_cast<C>(p.x[pixel.x + column.x + i * p.x_step.h + j * p.x_step.w]);
            }
        };

        C sums[kConvEach][kConvEach] = {};
        find_pixels(begin);
        __syncthreads();
        fetch();
        for (std::int64_t k = begin; k < end; k += kConvDepth) {
            __syncthreads();  // wait until the previous factors and pixels have been read
#pragma unroll
            for (int l = 0; l < kConvLoads; ++l) {
                factors.a[term][line + l * kLineStep] = a[l];
                factors.b[term][line + l * kLineStep] = b[l];
            }
            find_pixels(k + kConvDepth);
            __syncthreads();
            if (k + kConvDepth < end) fetch();
            conv_multiply(factors, sums);
        }

        const int own_row = thread / (kConvTile / kConvEach) * kConvEach;
        const int own_column = thread % (kConvTile / kConvEach) * kConvEach;
#pragma unroll
        for (int i = 0; i < kConvEach; ++i) {
            if (first_row + own_row + i >= p.rows) break;
            const std::int64_t row = (part * p.groups + group) * p.rows + first_row + own_row + i;
            C* to = partial_sums + row * p.columns + first_column + own_column;
#pragma unroll
            for (int j = 0; j < kConvEach; ++j)
                if (first_column + own_column + j < p.columns) to[j] = sums[i][j];
        }
        __syncthreads();  // all threads have read the tile, which is overwritten next
    }
}

template <class T>
__global__ void __launch_bounds__(kConvThreads)
    add_parts(const Compute<T>* sums, std::int64_t parts, std::int64_t n, std::int64_t columns,
              TripleIndex tap, ImageSteps step, T* dw) {
    using C = Compute<T>;
    for (std::int64_t e = thread_in_grid(); e < n; e += threads_in_grid()) {
        const std::int64_t o = e / columns;
        const auto [c, i, j] = tap(e - o * columns);
        C sum = 0;
        for (std::int64_t part = 0; part < parts; ++part) sum += sums[part * n + e];
        dw[o * step.n + c * step.c + i * step.h + j * step.w] = convert<T>(sum);
    }
}

}  // namespace

void conv2d_weight_gradient(Cuda& on, ConstView dy, ConstView x, const ConvGeometry& geometry,
                            View dw) {
    if (dy.numel() > 0 && cudnn::conv2d_weight_gradient(on, dy, x, geometry, dw)) return;
    DeviceScratch scratch(on);
    visit_float(dw.dtype, [&]<class T>() {
        const Product<T> p(dy, x, geometry, dw);
        const std::int64_t n = dw.numel();
        Compute<T>* sums = scratch.take<Compute<T>>(p.parts * n);
        constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 30;
        start(on, {{std::min(p.tiles, kMaxBlocks)}, kConvThreads}, &correlate_parts<T>, p, sums);
        start(on, {grid_for(on, n, kConvThreads), kConvThreads}, &add_parts<T>, sums, p.parts, n,
              p.columns, p.tap, ImageSteps(dw), dw.as<T>());
    });
}

}  // namespace axle::kernels
