// Convolution and transposed convolution, computed as correlations (correlation.cpp, direct.cpp,
// winograd.cpp), or as products with a row per pixel if images are small (pixel_rows.cpp).
//
// The matrix a of a correlation is the weight. For convolution, taps are `dilation` apart.
// Transposed convolution is split into one correlation with stride 1 for each phase (position
// within the two strides) that an output pixel has. Each of them computes the output pixels of its
// phase from the taps that contribute to these pixels. So every pixel is written once, and nothing
// is scattered.
#include "kernels/ops/conv.h"

#include <type_traits>

#include "kernels/cpu/conv/conv.h"
#include "kernels/cpu/conv/pixel_rows.h"
#include "kernels/cpu/conv/winograd.h"
#include "kernels/ops/copy.h"

namespace axle::kernels {
namespace {

// Returns the weight as a contiguous array of T.
template <class T>
const T* load_weight(Cpu& on, Scratch& scratch, const ConstView& w) {
    if (w.contiguous() && w.dtype == dtype_of<T>) return w.as<T>();
    return contiguous_copy(on, scratch, w, dtype_of<T>).template as<T>();
}

// Returns the taps that contribute to the elements first, first + stride, ... of dx along one
// dimension. Tap i contributes if r stride - padding + i dilation = first for some r.
Taps transposed_taps(Scratch& scratch, std::int64_t source, std::int64_t out, std::int64_t kernel,
                     const ConvAxis& axis, std::int64_t first) {
    Taps taps = make_taps(scratch, source, divide_up(out - first, axis.stride), kernel);
    for (std::int64_t i = 0; i < kernel; ++i) {
        const std::int64_t distance = first + axis.padding - i * axis.dilation;
        if (distance % axis.stride == 0) taps.add(i, distance / axis.stride);
    }
    taps.all = taps.count == kernel;
    return taps;
}

template <class T>
void compute(Cpu& on, const Correlation& p, const T* weight) {
    if constexpr (std::is_same_v<T, float>)
        if (suits_winograd(p)) return winograd(on, p, weight);
    if (suits_direct(p)) return direct<T>(on, p, weight);
    correlate<T>(on, p, weight);
}

template <class T>
void forward(Cpu& on, const ConstView& x, const ConstView& w, const ConstView& bias,
             const ConvGeometry& geometry, const View& y) {
    Scratch scratch(on);
    Correlation p;
    p.source = x, p.out = y, p.bias = bias;
    p.h = forward_taps(scratch, x.shape[2], y.shape[2], w.shape[2], geometry.h);
    p.w = forward_taps(scratch, x.shape[3], y.shape[3], w.shape[3], geometry.w);
    p.groups = geometry.groups, p.m = w.shape[0] / geometry.groups, p.channels = w.shape[1];
    p.kernel_w = w.shape[3], p.kernel_size = w.shape[2] * w.shape[3];
    p.channel_step = p.kernel_size, p.row_step = p.channels * p.kernel_size;
    p.group_step = p.m * p.row_step;
    compute<T>(on, p, load_weight<T>(on, scratch, w));
}

template <class T>
void transposed(Cpu& on, const ConstView& dy, const ConstView& w, const ConstView& bias,
                const ConvGeometry& geometry, const View& dx) {
    Scratch outer(on);
    const T* weight = load_weight<T>(on, outer, w);
    Correlation p;
    p.source = dy, p.bias = bias;
    p.groups = geometry.groups, p.m = w.shape[1];
    p.kernel_w = w.shape[3], p.kernel_size = w.shape[2] * w.shape[3];
    p.row_step = p.kernel_size, p.channel_step = p.m * p.kernel_size;
    p.group_step = w.shape[0] / geometry.groups * p.channel_step;
    const ConvAxis &h = geometry.h, &v = geometry.w;
    for (std::int64_t i = 0; i < std::min(h.stride, dx.shape[2]); ++i)
        for (std::int64_t j = 0; j < std::min(v.stride, dx.shape[3]); ++j) {
            Scratch scratch(on);
            p.h = transposed_taps(scratch, dy.shape[2], dx.shape[2], w.shape[2], h, i);
            p.w = transposed_taps(scratch, dy.shape[3], dx.shape[3], w.shape[3], v, j);
            // The channels of a phase without taps are not read.
            p.channels = p.h.count * p.w.count == 0 ? 1 : w.shape[0] / geometry.groups;
            p.out = dx;
            p.out.data = at(dx.data, dx.dtype, i * dx.stride[2] + j * dx.stride[3]);
            p.out.shape[2] = p.h.out, p.out.shape[3] = p.w.out;
            p.out.stride[2] *= h.stride, p.out.stride[3] *= v.stride;
            compute<T>(on, p, weight);
        }
}

}  // namespace

View contiguous_copy(Cpu& on, Scratch& scratch, const ConstView& from, DType dtype) {
    View to;
    to.dtype = dtype, to.ndim = from.ndim;
    std::int64_t stride = 1;
    for (int d = from.ndim - 1; d >= 0; --d)
        to.shape[d] = from.shape[d], to.stride[d] = stride, stride *= from.shape[d];
    to.data = scratch.take<std::byte>(stride * size_of(dtype));
    copy(on, from, to);
    return to;
}

ConstView with_one_row(Cpu& on, Scratch& scratch, const ConstView& images) {
    ConstView flat = images;
    if (images.stride[2] != images.shape[3] * images.stride[3])
        flat = contiguous_copy(on, scratch, images, images.dtype);
    flat.shape[3] *= flat.shape[2], flat.shape[2] = 1, flat.stride[2] = 0;
    return flat;
}

void conv2d(Cpu& on, ConstView x, ConstView w, ConstView bias, const ConvGeometry& geometry,
            View y) {
    if (y.numel() == 0) return;
    if (suits_pixel_rows(geometry, x, w, y)) return pixel_rows_forward(on, x, w, bias, geometry, y);
    visit_f32_f64(lane_dtype(y.dtype), [&]<class T>() { forward<T>(on, x, w, bias, geometry, y); });
}

void conv2d_transposed(Cpu& on, ConstView dy, ConstView w, ConstView bias,
                       const ConvGeometry& geometry, View dx) {
    if (dx.numel() == 0) return;
    if (bias.data == nullptr && suits_pixel_rows(geometry, dx, w, dy))
        return pixel_rows_transposed(on, dy, w, geometry, dx);
    visit_f32_f64(lane_dtype(dx.dtype),
                  [&]<class T>() { transposed<T>(on, dy, w, bias, geometry, dx); });
}

}  // namespace axle::kernels
