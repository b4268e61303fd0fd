// Max pooling of integers, composed of ops because it is rare. The windows are copied, and their
// maxima are selected by argmax.
#include "core/ops/spatial/integer_pool.h"

#include <algorithm>
#include <cstdint>

#include "core/ops.h"
#include "core/ops/shaping/views.h"

namespace axle {
namespace {

std::int64_t lowest_integer(DType dtype) {
    return dtype == u8 ? 0 : dtype == i32 ? INT32_MIN : INT64_MIN;
}

// Returns the positions in x, along spatial dimension d, of the first elements of the windows.
Tensor starts_along(const PoolSizes& sizes, int d, std::int64_t out, Device device) {
    const Tensor steps = arange(out, {.dtype = i64, .device = device});
    return sub(mul(steps, Scalar(sizes.stride[d])), Scalar(sizes.padding[d]));
}

}  // namespace

std::pair<Tensor, Tensor> integer_max_pool2d(const Tensor& x, const PoolSizes& sizes,
                                             const Dims& out) {
    const NoGrad no_grad;
    // The padding of the last dimension, then of the dimension before it, so that all windows fit.
    Dims around;
    for (int d = 1; d >= 0; --d) {
        const std::int64_t end =
            (out[d] - 1) * sizes.stride[d] + sizes.dilation[d] * (sizes.kernel[d] - 1) + 1;
        around.push_back(sizes.padding[d]);
        around.push_back(std::max<std::int64_t>(end - sizes.padding[d] - x.size(d - 2), 0));
    }
    // No element of i32 or u8 is as low as the padding.
    const Tensor padded = pad(to(x, i64), around, PadMode::constant, Scalar(INT64_MIN));
    Shape shape = padded.shape();
    Strides strides = padded.strides();
    const int h = x.dim() - 2, w = x.dim() - 1;
    for (int d = 0; d < 2; ++d) {
        shape[h + d] = out[d];
        shape.push_back(sizes.kernel[d]);
        strides.push_back(strides[h + d] * sizes.dilation[d]);
    }
    strides[h] *= sizes.stride[0];
    strides[w] *= sizes.stride[1];
    const Tensor windows = flatten(make_view(padded, shape, strides, padded.impl()->offset), -2);
    const Tensor best = argmax(windows, -1, true);
    const Tensor y = maximum(squeeze(gather(windows, -1, best), -1),
                             full({}, lowest_integer(x.dtype()), {i64, x.device()}));

    const Tensor at = squeeze(best, -1), width = full({}, sizes.kernel[1], {i64, x.device()});
    const auto position = [&](const Tensor& tap, const Tensor& starts, int d) {
        const double last = static_cast<double>(x.size(d - 2) - 1);
        return clamp(add(mul(tap, Scalar(sizes.dilation[d])), starts), 0, last);
    };
    const Tensor row = position(floor_divide(at, width),
                                unsqueeze(starts_along(sizes, 0, out[0], x.device()), -1), 0);
    const Tensor column =
        position(remainder(at, width), starts_along(sizes, 1, out[1], x.device()), 1);
    return {to(y, x.dtype()), add(mul(row, Scalar(x.size(-1))), column)};
}

}  // namespace axle
