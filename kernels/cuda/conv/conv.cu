// Convolution and transposed convolution without cuDNN, as implicit matrix products. The rows of
// the result are the channels of a group, and its columns are the pixels of all images. Each result
// is a sum over taps; a tap is a pair of a source channel and a position in the kernel. A block
// computes a tile of 64 x 64 results, so that each factor that it loads is used for 64 sums. It
// gathers the factors of 16 taps at a time in shared memory. While it multiplies, it loads the
// factors of the next 16 taps into registers. The transposed convolution visits all taps of a pixel
// and uses only the taps that the stride maps to an element of dy.
#include "kernels/cuda/conv/conv.cuh"
#include "kernels/cuda/conv/cudnn_conv.h"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/conv.h"

namespace axle::kernels {
namespace {

// Maps pixel i of the result and tap t to an element of the source, along one image dimension.
template <bool kTransposed>
struct TapIndex {
    std::int64_t size;  // size of the source
    std::int64_t stride, padding, dilation;
    Split by_stride;

    TapIndex(const ConvAxis& axis, std::int64_t size_)
        : size(size_),
          stride(axis.stride),
          padding(axis.padding),
          dilation(axis.dilation),
          by_stride(axis.stride) {}

    // The element is place(origin(i), distance(t)); a result of -1 means that no element exists.
    __device__ std::int64_t origin(std::int64_t i) const {
        return kTransposed ? i + padding : i * stride - padding;
    }
    __device__ std::int64_t distance(std::int64_t t) const {
        return kTransposed ? -t * dilation : t * dilation;
    }
    __device__ std::int64_t place(std::int64_t origin, std::int64_t distance) const {
        std::int64_t at = origin + distance;
        if (at < 0) return -1;
        if (kTransposed && stride != 1) {
            const std::int64_t strides = by_stride.quotient(at);
            if (strides * stride != at) return -1;
            at = strides;
        }
        return at < size ? at : -1;
    }
};

template <class T, bool kTransposed>
struct Product {
    const T* source;
    const T* weight;
    const T* bias;  // can be null
    T* result;
    // In weight_step, c is the stride of the channels over which the product sums.
    ImageSteps source_step, result_step, weight_step;
    std::int64_t row_step, bias_step;  // distances between rows in weight and bias
    std::int64_t group_step;           // distance between groups in the weight
    std::int64_t rows, channels;       // numbers per group
    std::int64_t depth, pixels;
    std::int64_t row_tiles, pixel_tiles, tiles;
    TapIndex<kTransposed> h, w;
    TripleIndex tap, pixel;

    // In a convolution, the second dimension of k is the channel of the source and the first is the
    // channel of the result. In a transposed convolution, these two dimensions are exchanged.
    Product(const ConstView& x, const ConstView& k, const ConstView& b,
            const ConvGeometry& geometry, const View& y)
        : source(x.as<T>()),
          weight(k.as<T>()),
          bias(b.as<T>()),
          result(y.as<T>()),
          source_step(x),
          result_step(y),
          weight_step(k),
          row_step(k.stride[kTransposed ? 1 : 0]),
          bias_step(b.stride[0]),
          rows(y.shape[1] / geometry.groups),
          channels(x.shape[1] / geometry.groups),
          depth(channels * k.shape[2] * k.shape[3]),
          pixels(y.shape[0] * y.shape[2] * y.shape[3]),
          row_tiles((rows + kConvTile - 1) / kConvTile),
          pixel_tiles((pixels + kConvTile - 1) / kConvTile),
          tiles(row_tiles * pixel_tiles * geometry.groups),
          h(geometry.h, x.shape[2]),
          w(geometry.w, x.shape[3]),
          tap(k.shape[2], k.shape[3]),
          pixel(y.shape[2], y.shape[3]) {
        weight_step.c = k.stride[kTransposed ? 0 : 1];
        group_step = k.stride[0] * (kTransposed ? channels : rows);
    }
};

// A tap: the offsets of its weight and of its source channel from the first elements of the group,
// its distances along both image dimensions (see TapIndex), and whether it exists.
struct Tap {
    std::int64_t weight, source;
    std::int64_t down, right;
    bool exists;
};

template <class T, bool kTransposed>
__global__ void __launch_bounds__(kConvThreads) correlate(Product<T, kTransposed> p) {
    using C = Compute<T>;
    __shared__ ConvFactors<C> factors;
    __shared__ Tap taps[kConvDepth];
    const int thread = static_cast<int>(threadIdx.x);
    // This thread loads the terms b_term, b_term + kTermStep, ... of column b_column of b, and the
    // term a_term of the rows a_row, a_row + kRowStep, ... of a.
    const int b_column = thread % kConvTile, b_term = thread / kConvTile;
    const int a_term = thread % kConvDepth, a_row = thread / kConvDepth;
    constexpr int kTermStep = kConvThreads / kConvTile, kRowStep = kConvThreads / kConvDepth;

    for (std::int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        const std::int64_t rest = tile / p.row_tiles, group = rest / p.pixel_tiles;
        const std::int64_t first_row = (tile - rest * p.row_tiles) * kConvTile;
        const std::int64_t first_pixel = (rest - group * p.pixel_tiles) * kConvTile;
        const T* weight = p.weight + group * p.group_step + first_row * p.row_step;
        const auto here = p.pixel(first_pixel + b_column);
        const bool in_images = first_pixel + b_column < p.pixels;
        const std::int64_t top = p.h.origin(here.second), left = p.w.origin(here.last);
        const T* image =
            p.source + here.first * p.source_step.n + group * p.channels * p.source_step.c;

        const auto find_taps = [&](std::int64_t first) {
            if (thread >= kConvDepth) return;
            const auto [c, i, j] = p.tap(first + thread);
            taps[thread] = {
                c * p.weight_step.c + i * p.weight_step.h + j * p.weight_step.w,
                c * p.source_step.c,
                p.h.distance(i),
                p.w.distance(j),
                first + thread < p.depth,
            };
        };
        C a[kConvLoads], b[kConvLoads];
        const auto fetch = [&] {
#pragma unroll
            for (int l = 0; l < kConvLoads; ++l) {
                const int row = a_row + l * kRowStep;
                const Tap& tap = taps[a_term];
                a[l] = 0;
                if (tap.exists && first_row + row < p.rows)
                    a[l] = static_cast<C>(weight[row * p.row_step + tap.weight]);
            }
#pragma unroll
            for (int l = 0; l < kConvLoads; ++l) {
                const Tap& tap = taps[b_term + l * kTermStep];
                const std::int64_t y = p.h.place(top, tap.down), x = p.w.place(left, tap.right);
                b[l] = 0;
                if (in_images && tap.exists && y >= 0 && x >= 0)
                    b[l] = static_cast<C>(
                        image[tap.source + y * p.source_step.h + x * p.source_step.w]);
            }
        };

        C sums[kConvEach][kConvEach] = {};
        find_taps(0);
        __syncthreads();
        fetch();
        for (std::int64_t k = 0; k < p.depth; k += kConvDepth) {
            __syncthreads();  // wait until the previous factors and taps have been read
#pragma unroll
            for (int l = 0; l < kConvLoads; ++l) {
                factors.a[a_term][a_row + l * kRowStep] = a[l];
                factors.b[b_term + l * kTermStep][b_column] = b[l];
            }
            find_taps(k + kConvDepth);
            __syncthreads();
            if (k + kConvDepth < p.depth) fetch();
            conv_multiply(factors, sums);
        }

        const int own_row = thread / (kConvTile / kConvEach) * kConvEach;
        const int own_column = thread % (kConvTile / kConvEach) * kConvEach;
#pragma unroll
        for (int j = 0; j < kConvEach; ++j) {
            if (first_pixel + own_column + j >= p.pixels) break;
            const auto [n, y, x] = p.pixel(first_pixel + own_column + j);
            T* to = p.result + n * p.result_step.n + y * p.result_step.h + x * p.result_step.w;
#pragma unroll
            for (int i = 0; i < kConvEach; ++i) {
                if (first_row + own_row + i >= p.rows) break;
                const std::int64_t channel = group * p.rows + first_row + own_row + i;
                const C base =
                    p.bias == nullptr ? C(0) : static_cast<C>(p.bias[channel * p.bias_step]);
                to[channel * p.result_step.c] = convert<T>(base + sums[i][j]);
            }
        }
        __syncthreads();  // wait before the taps of the next tile are written
    }
}

template <bool kTransposed>
void run(Cuda& on, const ConstView& source, const ConstView& w, const ConstView& bias,
         const ConvGeometry& geometry, const View& result) {
    visit_float(result.dtype, [&]<class T>() {
        const Product<T, kTransposed> product(source, w, bias, geometry, result);
        constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 30;
        start(on, {{std::min(product.tiles, kMaxBlocks)}, kConvThreads}, &correlate<T, kTransposed>,
              product);
    });
}

}  // namespace

void conv2d(Cuda& on, ConstView x, ConstView w, ConstView bias, const ConvGeometry& geometry,
            View y) {
    if (y.numel() == 0 || cudnn::conv2d(on, x, w, bias, geometry, y)) return;
    run<false>(on, x, w, bias, geometry, y);
}

void conv2d_transposed(Cuda& on, ConstView dy, ConstView w, ConstView bias,
                       const ConvGeometry& geometry, View dx) {
    if (dx.numel() == 0 || cudnn::conv2d_transposed(on, dy, w, bias, geometry, dx)) return;
    run<true>(on, dy, w, bias, geometry, dx);
}

}  // namespace axle::kernels
