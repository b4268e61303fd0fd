// Pooling without cuDNN. A thread computes one element of the result. It finds the element's window
// and reads the elements in it. In the backward pass, it finds the windows that contain the
// element. Adjacent windows usually overlap or touch, so an element is read once from memory and
// then from L1. If windows are large and few are adjacent, as in means of complete planes, a warp
// computes one element of the forward pass.
#include "kernels/cuda/pool/cudnn_pool.h"
#include "kernels/cuda/pool/planes.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/pool.h"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;

// The inputs of one pooling window: begin, begin + dilation and so on, below `end`. The window is
// empty if end <= begin. begin is always inside the input.
template <class I>
struct Window {
    I begin, end;
    I padded;  // number of elements, including padding, if the dilation is 1
};

// The windows along one axis, with coordinates of type I.
template <class I>
struct Side {
    I in, out;
    I kernel, stride, padding, dilation;
    bool parts;  // true for adaptive pooling if `out` does not divide `in`
    Split by_in, by_out, by_stride;

    Side(PoolAxis axis, bool adaptive, std::int64_t in_, std::int64_t out_)
        : in(static_cast<I>(in_)), out(static_cast<I>(out_)) {
        if (adaptive && in_ % out_ == 0) axis = {.kernel = in_ / out_, .stride = in_ / out_};
        parts = adaptive && in_ % out_ != 0;
        kernel = static_cast<I>(axis.kernel), stride = static_cast<I>(axis.stride);
        padding = static_cast<I>(axis.padding), dilation = static_cast<I>(axis.dilation);
        by_in = Split(in_), by_out = Split(out_), by_stride = Split(axis.stride);
    }

    __device__ Window<I> window(I o) const {
        if (parts) {
            const auto at = static_cast<std::int64_t>(o) * in;
            const auto begin = static_cast<I>(by_out.quotient(at));
            const auto end = static_cast<I>(by_out.quotient(at + in + out - 1));
            return {begin, end, end - begin};
        }
        const I begin = o * stride - padding;
        const I end = begin + (kernel - 1) * dilation + 1;
        const I padded = std::min(end, in + padding) - begin;
        const I missing = begin < 0 ? (dilation - 1 - begin) / dilation : 0;
        const I first = begin + missing * dilation;
        if (first >= in) return {in - 1, in - 1, padded};
        return {first, std::min(end, in), padded};
    }
    // Returns the number of inputs in a window.
    __device__ I count(const Window<I>& w) const {
        if (w.end <= w.begin) return 0;
        return dilation == 1 ? w.end - w.begin : (w.end - w.begin - 1) / dilation + 1;
    }

    // Returns the range of outputs whose windows contain input i. The dilation must be 1.
    __device__ Window<I> readers(I i) const {
        if (parts) {
            const auto at = static_cast<std::int64_t>(i) * out;
            const auto begin = static_cast<I>(by_in.quotient(at));
            return {begin, static_cast<I>(by_in.quotient(at + out + in - 1)), 0};
        }
        const I last = i + padding;
        const I begin = last < kernel ? 0 : static_cast<I>(by_stride.quotient(last - kernel)) + 1;
        return {begin, std::min(out, static_cast<I>(by_stride.quotient(last)) + 1), 0};
    }
};

template <class I>
struct Windows {
    Side<I> h, w;
    bool count_padding;
    I divisor;

    Windows(const Pool& pool, const ConstView& in, const ConstView& out)
        : h(pool.h, pool.adaptive, in.back(2), out.back(2)),
          w(pool.w, pool.adaptive, in.back(1), out.back(1)),
          count_padding(pool.count_padding),
          divisor(static_cast<I>(pool.divisor)) {}

    // Returns the divisor of the mean over a window.
    template <class C>
    __device__ C divide_by(const Window<I>& a, const Window<I>& b) const {
        if (divisor != 0) return static_cast<C>(divisor);
        return static_cast<C>(count_padding
                                  ? static_cast<std::int64_t>(a.padded) * b.padded
                                  : static_cast<std::int64_t>(a.end - a.begin) * (b.end - b.begin));
    }
};

// Calls f(i, j) for each element of a window. The elements are distributed over kLanes lanes.
template <int kLanes, class I, class F>
__device__ inline void for_window(const Side<I>& h, const Side<I>& w, const Window<I>& a,
                                  const Window<I>& b, F f) {
    if constexpr (kLanes == 1) {
        for (I i = a.begin; i < a.end; i += h.dilation)
            for (I j = b.begin; j < b.end; j += w.dilation) f(i, j);
        return;
    }
    const I rows = h.count(a), columns = w.count(b);
    if (columns == 0) return;
    const I lane = static_cast<I>(threadIdx.x % kLanes);
    const I down = static_cast<I>(kLanes) / columns, right = kLanes - down * columns;
    I row = lane / columns;
    for (I column = lane - row * columns; row < rows;) {
        f(a.begin + row * h.dilation, b.begin + column * w.dilation);
        row += down, column += right;
        if (column >= columns) column -= columns, ++row;
    }
}

template <class C, class I>
struct Largest {
    C value;
    I place;

    // Returns whether x, at position `at`, must replace the current maximum.
    __device__ bool yields_to(C x, I at) const {
        if (value != value) return x != x && at > place;
        return x != x || x > value || (x == value && at < place);
    }
};

template <int kLanes, class T, class I>
__global__ void __launch_bounds__(kThreads)
    max_pool(Windows<I> pool, PlaneIndex index, std::int64_t n, ImagePlanes<T> x, T* y,
             std::int64_t* indices) {
    using C = Compute<T>;
    for (std::int64_t e = thread_in_grid() / kLanes; e < n; e += threads_in_grid() / kLanes) {
        const auto [plane, h, w] = index(e);
        const Window<I> a = pool.h.window(static_cast<I>(h)), b = pool.w.window(static_cast<I>(w));
        const T* from = x.plane(plane);
        Largest<C, I> best = {-std::numeric_limits<C>::infinity(), a.begin * pool.w.in + b.begin};
        for_window<kLanes>(pool.h, pool.w, a, b, [&](I i, I j) {
            const C v = static_cast<C>(from[i * x.step_h + j * x.step_w]);
            if (v > best.value || v != v) best = {v, i * pool.w.in + j};
        });
        if constexpr (kLanes > 1) {
            for (int offset = kLanes / 2; offset > 0; offset /= 2) {
                const C value = __shfl_xor_sync(kAllLanes, best.value, offset);
                const I place = __shfl_xor_sync(kAllLanes, best.place, offset);
                if (best.yields_to(value, place)) best = {value, place};
            }
            if (threadIdx.x % kLanes != 0) continue;
        }
        y[e] = convert<T>(best.value);
        if (indices != nullptr) indices[e] = best.place;
    }
}

template <int kLanes, class T, class I>
__global__ void __launch_bounds__(kThreads)
    mean_pool(Windows<I> pool, PlaneIndex index, std::int64_t n, ImagePlanes<T> x, T* y) {
    using C = Compute<T>;
    for (std::int64_t e = thread_in_grid() / kLanes; e < n; e += threads_in_grid() / kLanes) {
        const auto [plane, h, w] = index(e);
        const Window<I> a = pool.h.window(static_cast<I>(h)), b = pool.w.window(static_cast<I>(w));
        const T* from = x.plane(plane);
        C sum = 0;
        for_window<kLanes>(pool.h, pool.w, a, b, [&](I i, I j) {
            sum += static_cast<C>(from[i * x.step_h + j * x.step_w]);
        });
        if constexpr (kLanes > 1) sum = warp_sum(sum, kLanes);
        if (kLanes > 1 && threadIdx.x % kLanes != 0) continue;
        y[e] = convert<T>(sum / pool.template divide_by<C>(a, b));
    }
}

template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    spread_means(Windows<I> pool, PlaneIndex index, std::int64_t n, ImagePlanes<T> dy,
                 Compute<T>* dx) {
    using C = Compute<T>;
    for (std::int64_t e = thread_in_grid(); e < n; e += threads_in_grid()) {
        const auto [plane, h, w] = index(e);
        const Window<I> down = pool.h.readers(static_cast<I>(h));
        const Window<I> right = pool.w.readers(static_cast<I>(w));
        const T* from = dy.plane(plane);
        C sum = 0;
        for (I i = down.begin; i < down.end; ++i) {
            const Window<I> a = pool.h.window(i);
            C row = 0;
            for (I j = right.begin; j < right.end; ++j)
                row += static_cast<C>(from[i * dy.step_h + j * dy.step_w]) /
                       pool.template divide_by<C>(a, pool.w.window(j));
            sum += row;
        }
        dx[e] = sum;
    }
}

// Returns whether coordinates and positions in a plane of the input fit in 31 bits.
bool is_narrow(const Pool& pool, const ConstView& in, const ConstView& out) {
    constexpr std::int64_t kMax = std::int64_t{1} << 30;
    const auto fits = [](const PoolAxis& axis, std::int64_t size, std::int64_t results) {
        return axis.kernel <= kMax / axis.dilation && size < kMax / 2 && results < kMax &&
               size + axis.kernel * axis.dilation + axis.stride + axis.padding < kMax;
    };
    return fits(pool.adaptive ? PoolAxis() : pool.h, in.back(2), out.back(2)) &&
           fits(pool.adaptive ? PoolAxis() : pool.w, in.back(1), out.back(1)) &&
           in.back(2) * in.back(1) < kMax && pool.divisor > -kMax && pool.divisor < kMax;
}

// Returns whether to use one warp per window. This is faster if windows are large and a row has too
// few windows for adjacent lanes to read adjacent elements.
bool is_wide(const Pool& pool, const ConstView& in, const ConstView& out) {
    const std::int64_t h = pool.adaptive ? in.back(2) / out.back(2) : pool.h.kernel;
    const std::int64_t w = pool.adaptive ? in.back(1) / out.back(1) : pool.w.kernel;
    return out.back(1) < kWarp / 2 && h >= kWarp / std::max<std::int64_t>(w, 1);
}

// Calls f<kLanes, T, I>() with the template arguments that the shapes and dtypes require.
template <class F>
void visit_windows(const Pool& pool, const ConstView& x, const ConstView& y, F&& f) {
    visit_float(x.dtype, [&]<class T>() {
        if (!is_narrow(pool, x, y)) return f.template operator()<1, T, std::int64_t>();
        if (is_wide(pool, x, y)) return f.template operator()<kWarp, T, int>();
        f.template operator()<1, T, int>();
    });
}

}  // namespace

void max_pool2d(Cuda& on, const Pool& pool, ConstView x, View y, View indices) {
    const std::int64_t n = y.numel();
    if (n == 0 || (indices.data == nullptr && cudnn::max_pool2d(on, pool, x, y))) return;
    const PlaneIndex index(y.back(2), y.back(1));
    visit_windows(pool, x, y, [&]<int kLanes, class T, class I>() {
        start(on, {grid_for(on, n * kLanes, kThreads), kThreads}, &max_pool<kLanes, T, I>,
              Windows<I>(pool, x, y), index, n, ImagePlanes<T>(x), y.as<T>(),
              indices.as<std::int64_t>());
    });
}

void avg_pool2d(Cuda& on, const Pool& pool, ConstView x, View y) {
    const std::int64_t n = y.numel();
    if (n == 0 || cudnn::avg_pool2d(on, pool, x, y)) return;
    const PlaneIndex index(y.back(2), y.back(1));
    visit_windows(pool, x, y, [&]<int kLanes, class T, class I>() {
        start(on, {grid_for(on, n * kLanes, kThreads), kThreads}, &mean_pool<kLanes, T, I>,
              Windows<I>(pool, x, y), index, n, ImagePlanes<T>(x), y.as<T>());
    });
}

void avg_pool2d_backward(Cuda& on, const Pool& pool, ConstView dy, View dx) {
    const std::int64_t n = dx.numel();
    if (n == 0 || cudnn::avg_pool2d_backward(on, pool, dy, dx)) return;
    const PlaneIndex index(dx.back(2), dx.back(1));
    visit_float(dy.dtype, [&]<class T>() {
        const auto run = [&]<class I>() {
            start(on, {grid_for(on, n, kThreads), kThreads}, &spread_means<T, I>,
                  Windows<I>(pool, dx, dy), index, n, ImagePlanes<T>(dy), dx.as<Compute<T>>());
        };
        if (is_narrow(pool, dx, dy)) return run.template operator()<int>();
        run.template operator()<std::int64_t>();
    });
}

}  // namespace axle::kernels
