// Resizing. For each axis, a small table in scratch memory lists the inputs that each output reads.
// In the backward pass, a second table lists the outputs that read each input. Each table is
// computed once per call. Then each thread computes one element of the result from the tables. The
// forward pass blends up to four neighbors; the backward pass sums the outputs that read the
// element. The threads of a warp read elements that are close together, so that each element is
// read from memory once.
#include "kernels/cuda/pool/planes.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/interpolate.h"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;

// The inputs of one output, whose value is (1 - weight) x[low] + weight x[high], or x[low] if low
// equals high.
struct Tap {
    std::int64_t low, high;
    double weight;
};

// The outputs [begin, end) that read an input.
struct Readers {
    std::int64_t begin, end;
};

// The resizing of one axis.
struct Axis {
    enum Kind { same, nearest, exact, corners, centers };

    Kind kind;
    std::int64_t in, out;
    float nearest_step = 0;
    double step = 0;

    Axis(const Resize& resize, double scale, std::int64_t in_, std::int64_t out_)
        : kind(in_ == out_ && !(resize.exact && scale != 0) ? same
               : !resize.bilinear                           ? (resize.exact ? exact : nearest)
               : resize.align_corners                       ? corners
                                                            : centers),
          in(in_),
          out(out_) {
        const auto size = static_cast<double>(in);
        if (kind == nearest || kind == exact)
            nearest_step = scale != 0 ? static_cast<float>(1 / scale)
                                      : static_cast<float>(in) / static_cast<float>(out);
        if (kind == centers) step = scale != 0 ? 1 / scale : size / static_cast<double>(out);
        if (kind == corners && out > 1) step = (size - 1) / static_cast<double>(out - 1);
    }

    __device__ Tap tap(std::int64_t o) const {
        if (kind == same) return {o, o, 0};
        if (kind == nearest || kind == exact) {
            const double middle = (static_cast<double>(o) + 0.5) * double{nearest_step};
            const float at = floor(kind == exact ? static_cast<float>(middle)
                                                 : static_cast<float>(o) * nearest_step);
            const std::int64_t i = std::min(static_cast<std::int64_t>(at), in - 1);
            return {i, i, 0};
        }
        const auto place = static_cast<double>(o);
        double at = place * step;
        if (kind == centers) at = std::max(0.0, (place + 0.5) * step - 0.5);
        const std::int64_t low = std::min(static_cast<std::int64_t>(at), in - 1);
        const std::int64_t high = std::min(low + 1, in - 1);
        return {low, high, std::clamp(at - static_cast<double>(low), 0.0, 1.0)};
    }
};

__global__ void make_taps(Axis axis, Tap* taps) {
    for (std::int64_t o = thread_in_grid(); o < axis.out; o += threads_in_grid())
        taps[o] = axis.tap(o);
}

// Finds the outputs that read each input. low and high must be non-decreasing over the outputs.
__global__ void make_readers(const Tap* taps, std::int64_t out, std::int64_t in, Readers* readers) {
    for (std::int64_t i = thread_in_grid(); i < in; i += threads_in_grid()) {
        // Returns the first output at or after `begin` for which f is true. f must be true for all
        // later outputs.
        const auto first = [&](std::int64_t begin, auto f) {
            for (std::int64_t end = out; begin < end;) {
                const std::int64_t middle = begin + (end - begin) / 2;
                if (f(taps[middle]))
                    end = middle;
                else
                    begin = middle + 1;
            }
            return begin;
        };
        const std::int64_t begin = first(0, [i](const Tap& tap) { return tap.high >= i; });
        readers[i] = {begin, first(begin, [i](const Tap& tap) { return tap.low > i; })};
    }
}

template <class C>
__device__ inline C blend(C a, C b, C weight) {
    return (1 - weight) * a + weight * b;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    resize_planes(const Tap* down, const Tap* right, PlaneIndex index, std::int64_t n,
                  ImagePlanes<T> x, T* y) {
    using C = Compute<T>;
    for (std::int64_t e = thread_in_grid(); e < n; e += threads_in_grid()) {
        const auto [plane, h, w] = index(e);
        const Tap a = down[h], b = right[w];
        const T* row = x.plane(plane) + a.low * x.step_h;
        const T* next = row + (a.high - a.low) * x.step_h;
        const auto column = [&](std::int64_t j) {
            const C above = static_cast<C>(row[j * x.step_w]);
            if (next == row) return above;
            return blend(above, static_cast<C>(next[j * x.step_w]), static_cast<C>(a.weight));
        };
        C value = column(b.low);
        if (b.high != b.low) value = blend(value, column(b.high), static_cast<C>(b.weight));
        y[e] = convert<T>(value);
    }
}

// Returns the weight of input i in an output.
template <class C>
__device__ inline C share_of(const Tap& tap, std::int64_t i) {
    if (tap.high == tap.low) return 1;
    return tap.low == i ? 1 - static_cast<C>(tap.weight) : static_cast<C>(tap.weight);
}

struct Reading {
    const Tap* taps;
    const Readers* readers;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_planes(Reading down, Reading right, PlaneIndex index, std::int64_t n, ImagePlanes<T> dy,
                  Compute<T>* dx) {
    using C = Compute<T>;
    for (std::int64_t e = thread_in_grid(); e < n; e += threads_in_grid()) {
        const auto [plane, h, w] = index(e);
        const Readers rows = down.readers[h], columns = right.readers[w];
        const T* from = dy.plane(plane);
        C sum = 0;
        for (std::int64_t i = rows.begin; i < rows.end; ++i) {
            C row = 0;
            for (std::int64_t j = columns.begin; j < columns.end; ++j)
                row += share_of<C>(right.taps[j], w) *
                       static_cast<C>(from[i * dy.step_h + j * dy.step_w]);
            sum += share_of<C>(down.taps[i], h) * row;
        }
        dx[e] = sum;
    }
}

const Tap* taps_of(Cuda& on, DeviceScratch& scratch, const Axis& axis) {
    Tap* taps = scratch.take<Tap>(axis.out);
    start(on, {grid_for(on, axis.out, kThreads), kThreads}, &make_taps, axis, taps);
    return taps;
}

Reading reading_of(Cuda& on, DeviceScratch& scratch, const Axis& axis) {
    Readers* readers = scratch.take<Readers>(axis.in);
    const Tap* taps = taps_of(on, scratch, axis);
    start(on, {grid_for(on, axis.in, kThreads), kThreads}, &make_readers, taps, axis.out, axis.in,
          readers);
    return {taps, readers};
}

}  // namespace

void interpolate(Cuda& on, const Resize& resize, ConstView x, View y) {
    const std::int64_t n = y.numel();
    if (n == 0) return;
    DeviceScratch scratch(on);
    const Tap* down = taps_of(on, scratch, Axis(resize, resize.scale_h, x.back(2), y.back(2)));
    const Tap* right = taps_of(on, scratch, Axis(resize, resize.scale_w, x.back(1), y.back(1)));
    visit_float(x.dtype, [&]<class T>() {
        start(on, {grid_for(on, n, kThreads), kThreads}, &resize_planes<T>, down, right,
              PlaneIndex(y.back(2), y.back(1)), n, ImagePlanes<T>(x), y.as<T>());
    });
}

void interpolate_backward(Cuda& on, const Resize& resize, ConstView dy, View dx) {
    const std::int64_t n = dx.numel();
    if (n == 0) return;
    DeviceScratch scratch(on);
    const Reading down =
        reading_of(on, scratch, Axis(resize, resize.scale_h, dx.back(2), dy.back(2)));
    const Reading right =
        reading_of(on, scratch, Axis(resize, resize.scale_w, dx.back(1), dy.back(1)));
    visit_float(dy.dtype, [&]<class T>() {
        start(on, {grid_for(on, n, kThreads), kThreads}, &gather_planes<T>, down, right,
              PlaneIndex(dx.back(2), dx.back(1)), n, ImagePlanes<T>(dy), dx.as<Compute<T>>());
    });
}

}  // namespace axle::kernels
