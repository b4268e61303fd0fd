// Windows of tensors. Both forms of unfold() select elements, and their gradients are sums of
// windows. fold() and the unfold() of images are the gradients of each other.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/shaping/views.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// --- windows along a dimension

Tensor windows_along(const Tensor& x, int d, std::int64_t size, std::int64_t step) {
    Shape shape = x.shape();
    Strides strides = x.strides();
    shape[d] = (shape[d] - size) / step + 1;
    shape.push_back(size);
    strides.push_back(strides[d]);
    strides[d] *= step;
    return make_view(x, shape, strides, x.impl()->offset);
}

// Returns x or, in half precision, x in f32, in which sums are more accurate.
Tensor for_sums(const Tensor& x) { return is_half(x.dtype()) ? to(x, f32) : x; }

// Returns a tensor of `shape` to which each window of dy is added at its position along d.
Tensor sum_of_windows(const Tensor& dy, const Shape& shape, int d, std::int64_t size,
                      std::int64_t step) {
    Tensor dx;
    {
        const NoGrad no_grad;
        const Tensor windows = for_sums(dy);
        dx = zeros(shape, {.dtype = windows.dtype(), .device = windows.device()});
        // Windows that are `apart` windows from each other do not overlap, so that one addition
        // covers all of them.
        const std::int64_t count = windows.shape()[d];
        const std::int64_t apart = std::max<std::int64_t>((size + step - 1) / step, 1);
        for (std::int64_t first = 0; first < std::min(apart, count); ++first) {
            const Tensor rest = narrow(dx, d, first * step, shape[d] - first * step);
            windows_along(rest, d, size, apart * step).add_(slice(windows, d, first, count, apart));
        }
    }
    return record("unfold", dx, {dy}, [d, size, step](const Grads& ddx, Needs) -> Grads {
        return {unfold(ddx[0], d, size, step)};
    });
}

// --- windows of images

// The windows of images: sizes, and the number of windows in both directions.
struct Windows {
    Size2 image, kernel;
    UnfoldOptions options;
    Size2 count;
};

void check_range(const char* op, const char* name, const Size2& size, std::int64_t least) {
    for (const std::int64_t n : {size.h, size.w})
        if (n < least || n > INT32_MAX)
            throw ValueError(str(op, ": the ", name, " must be in [", least, ", 2^31): ", size));
}

Windows windows_of(const char* op, const Size2& image, const Size2& kernel,
                   const UnfoldOptions& options) {
    check_range(op, "kernel", kernel, 1);
    check_range(op, "dilation", options.dilation, 1);
    check_range(op, "padding", options.padding, 0);
    check_range(op, "stride", options.stride, 1);
    check_range(op, "size of an image", image, 0);
    const auto count = [](std::int64_t size, std::int64_t width, std::int64_t dilation,
                          std::int64_t padding, std::int64_t stride) {
        const std::int64_t room = size + 2 * padding - dilation * (width - 1) - 1;
        return room < 0 ? 0 : room / stride + 1;
    };
    const Size2 n(
        count(image.h, kernel.h, options.dilation.h, options.padding.h, options.stride.h),
        count(image.w, kernel.w, options.dilation.w, options.padding.w, options.stride.w));
    if (n.h < 1 || n.w < 1)
        throw ShapeError(str(op, ": no window fits in the padded image: image ", image, ", kernel ",
                             kernel, ", dilation ", options.dilation, ", padding ",
                             options.padding));
    return {image, kernel, options, n};
}

// Returns a view of the windows of padded images: [N, C, kernel.h, kernel.w, count.h, count.w].
Tensor view_windows(const Tensor& padded, const Windows& w) {
    const Strides& s = padded.strides();
    return make_view(padded,
                     {padded.size(0), padded.size(1), w.kernel.h, w.kernel.w, w.count.h, w.count.w},
                     {s[0], s[1], s[2] * w.options.dilation.h, s[3] * w.options.dilation.w,
                      s[2] * w.options.stride.h, s[3] * w.options.stride.w},
                     padded.impl()->offset);
}

Tensor images_of(const Tensor& columns, const Windows& w);

// Returns the windows of images [N, C, H, W] as columns.
Tensor columns_of(const Tensor& x, const Windows& w) {
    Tensor y;
    {
        const NoGrad no_grad;
        const Size2& p = w.options.padding;
        const Tensor padded = p == Size2(0) ? x.detach() : pad(x.detach(), {p.w, p.w, p.h, p.h});
        y = reshape(clone(view_windows(padded, w)),
                    {x.size(0), x.size(1) * w.kernel.h * w.kernel.w, w.count.h * w.count.w});
    }
    return record("unfold", y, {x},
                  [w](const Grads& dy, Needs) -> Grads { return {images_of(dy[0], w)}; });
}

// Sums columns [N, C * kernel.h * kernel.w, windows] into images [N, C, H, W]: each pixel is the
// sum of its values in the columns.
Tensor images_of(const Tensor& columns, const Windows& w) {
    Tensor y;
    {
        const NoGrad no_grad;
        const std::int64_t n = columns.size(0), c = columns.size(1) / (w.kernel.h * w.kernel.w);
        const Size2 &p = w.options.padding, &step = w.options.stride, &apart = w.options.dilation;
        const Tensor all = reshape(for_sums(columns.detach()),
                                   {n, c, w.kernel.h, w.kernel.w, w.count.h, w.count.w});
        const Tensor padded = zeros({n, c, w.image.h + 2 * p.h, w.image.w + 2 * p.w},
                                    {.dtype = all.dtype(), .device = all.device()});
        for (std::int64_t i = 0; i < w.kernel.h; ++i) {
            const Tensor rows =
                slice(padded, 2, i * apart.h, i * apart.h + (w.count.h - 1) * step.h + 1, step.h);
            for (std::int64_t j = 0; j < w.kernel.w; ++j)
                slice(rows, 3, j * apart.w, j * apart.w + (w.count.w - 1) * step.w + 1, step.w)
                    .add_(select(select(all, 2, i), 2, j));
        }
        const Tensor image = narrow(narrow(padded, 2, p.h, w.image.h), 3, p.w, w.image.w);
        y = contiguous(to(image, columns.dtype()));
    }
    return record("fold", y, {columns},
                  [w](const Grads& dy, Needs) -> Grads { return {columns_of(dy[0], w)}; });
}

}  // namespace

Tensor unfold(const Tensor& x, std::int64_t dim, std::int64_t size, std::int64_t step) {
    const profiler::OpScope scope("unfold");
    check_device("unfold", {&x});
    const int d = wrap_dim("unfold", dim, x.dim());
    const std::int64_t length = x.dim() == 0 ? 1 : x.shape()[d];
    if (step < 1) throw ValueError(str("unfold: the step must be positive: ", step));
    if (size < 0 || size > length)
        throw ValueError(str("unfold: the size must be in [0, ", length, "] for dimension ", dim,
                             ": size ", size, ", x ", x.shape()));
    if (x.dim() == 0) return narrow(reshape(x, 1), 0, 0, size);
    return record("unfold", windows_along(x, d, size, step), {x},
                  [d, size, step, shape = x.shape()](const Grads& dy, Needs) -> Grads {
                      return {sum_of_windows(dy[0], shape, d, size, step)};
                  });
}

Tensor unfold(const Tensor& x, Size2 kernel, const UnfoldOptions& options) {
    const profiler::OpScope scope("unfold");
    check_device("unfold", {&x});
    if (x.dim() != 3 && x.dim() != 4)
        throw ShapeError(str("unfold: images must be [N, C, H, W] or [C, H, W]: x ", x.shape()));
    const Windows w = windows_of("unfold", {x.size(-2), x.size(-1)}, kernel, options);
    return x.dim() == 4 ? columns_of(x, w) : squeeze(columns_of(unsqueeze(x, 0), w), 0);
}

Tensor fold(const Tensor& x, Size2 size, Size2 kernel, const UnfoldOptions& options) {
    const profiler::OpScope scope("fold");
    check_device("fold", {&x});
    check_compute("fold", x);
    const Windows w = windows_of("fold", size, kernel, options);
    const std::int64_t pixels = kernel.h * kernel.w, windows = w.count.h * w.count.w;
    if ((x.dim() != 2 && x.dim() != 3) || x.size(-2) % pixels != 0 || x.size(-1) != windows)
        throw ShapeError(str("fold: columns must be [N, C * ", pixels, ", ", windows, "] or [C * ",
                             pixels, ", ", windows, "] for images of size ", size, " and kernel ",
                             kernel, ": x ", x.shape()));
    return x.dim() == 3 ? images_of(x, w) : squeeze(images_of(unsqueeze(x, 0), w), 0);
}

}  // namespace axle
