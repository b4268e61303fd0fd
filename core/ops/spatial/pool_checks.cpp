#include "core/ops/spatial/pool_checks.h"

#include "core/check.h"

namespace axle {
namespace {

void check_pool_padding(const char* op, const Dims& padding, const Dims& kernel) {
    for (int d = 0; d < padding.size(); ++d) {
        if (padding[d] < 0)
            throw ValueError(str(op, ": the padding must not be negative: ", padding));
        if (padding[d] > kernel[d] / 2)
            throw ValueError(str(op, ": the padding must be at most half of the kernel size: ",
                                 "padding ", padding, ", kernel ", kernel));
    }
}

// Returns the number of windows along spatial dimension d of `in` elements. ceil_mode adds an
// incomplete window that starts inside the input or in the padding before it.
std::int64_t windows_in(const PoolSizes& sizes, int d, std::int64_t in) {
    const std::int64_t stride = sizes.stride[d], padding = sizes.padding[d];
    const std::int64_t extent = sizes.dilation[d] * (sizes.kernel[d] - 1) + 1;
    const std::int64_t free_space = in + 2 * padding - extent;
    if (free_space < 0 && (!sizes.ceil_mode || free_space <= -stride)) return 0;
    const std::int64_t count = (free_space + (sizes.ceil_mode ? stride - 1 : 0)) / stride + 1;
    return sizes.ceil_mode && (count - 1) * stride >= in + padding ? count - 1 : count;
}

}  // namespace

void check_pool_input(const char* op, const Tensor& x, int spatial, bool integers) {
    check_device(op, {&x});
    const DType dtype = x.dtype();
    if (!integers || !(dtype == i64 || dtype == i32 || dtype == u8)) check_floating(op, x);
    const int first = x.dim() - spatial - 1;  // the dimension of channels
    bool fits = first == 0 || first == 1;
    for (int d = first; fits && d < x.dim(); ++d) fits = x.shape()[d] > 0;
    if (fits) return;
    const char* const names[] = {"L", "H, W", "D, H, W"};
    const char* const name = names[spatial - 1];
    throw ShapeError(str(op, ": x must be [N, C, ", name, "] or [C, ", name,
                         "], and only N can be 0: x ", x.shape()));
}

void check_pool_size(const char* op, const char* name, const Dims& sizes) {
    constexpr std::int64_t kMax = INT32_MAX;  // arithmetic up to this number cannot overflow
    for (const std::int64_t n : sizes)
        if (n < 1 || n > kMax)
            throw ValueError(str(op, ": ", name, " must be positive and below 2^31: ", sizes));
}

Dims pooled_size(const char* op, const Tensor& x, const PoolSizes& sizes) {
    const int spatial = sizes.kernel.size();
    check_pool_input(op, x, spatial, sizes.integers);
    check_pool_size(op, "the kernel", sizes.kernel);
    check_pool_size(op, "the stride", sizes.stride);
    check_pool_size(op, "the dilation", sizes.dilation);
    check_pool_padding(op, sizes.padding, sizes.kernel);
    Dims out = sizes.kernel;
    for (int d = 0; d < spatial; ++d) {
        out[d] = windows_in(sizes, d, x.size(d - spatial));
        if (out[d] < 1)
            throw ShapeError(str(op, ": the kernel ", sizes.kernel,
                                 " is larger than the padded input: x ", x.shape(), ", padding ",
                                 sizes.padding, ", dilation ", sizes.dilation));
    }
    return out;
}

}  // namespace axle
