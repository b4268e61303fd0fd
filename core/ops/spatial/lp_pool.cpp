// Norms of windows, computed from means of powers as in PyTorch.
#include "core/ops.h"
#include "core/ops/spatial/pool_checks.h"
#include "core/profiler/profiler.h"
#include "core/spatial.h"

namespace axle {
namespace {

void check_lp_pool(const char* op, const Tensor& x, double norm_type, const Dims& kernel,
                   const Dims& stride, bool ceil_mode) {
    Dims zeros = kernel, ones = kernel;
    for (int d = 0; d < kernel.size(); ++d) zeros[d] = 0, ones[d] = 1;
    pooled_size(op, x,
                {.kernel = kernel,
                 .stride = stride,
                 .padding = zeros,
                 .dilation = ones,
                 .ceil_mode = ceil_mode});
    if (norm_type == 0) throw ValueError(str(op, ": norm_type must not be 0"));
}

// Returns the norms of windows of n elements from the means of powers. Computes sign(mean)
// relu(|mean|) as PyTorch does, so that a mean of 0 gets the same gradient.
Tensor norms_from_means(const Tensor& means, double norm_type, std::int64_t n) {
    const Tensor sums = mul(mul(sign(means), relu(abs(means))), Scalar(n));
    return pow(sums, 1 / norm_type);
}

}  // namespace

Tensor lp_pool1d(const Tensor& x, double norm_type, std::int64_t kernel,
                 const LpPool1dOptions& options) {
    const profiler::OpScope scope("lp_pool1d");
    const std::int64_t stride = options.stride.value_or(kernel);
    check_lp_pool("lp_pool1d", x, norm_type, kernel, stride, options.ceil_mode);
    const Tensor means =
        avg_pool1d(pow(x, norm_type), kernel, {.stride = stride, .ceil_mode = options.ceil_mode});
    return norms_from_means(means, norm_type, kernel);
}

Tensor lp_pool2d(const Tensor& x, double norm_type, Size2 kernel, const LpPool2dOptions& options) {
    const profiler::OpScope scope("lp_pool2d");
    const Size2 stride = options.stride.value_or(kernel);
    check_lp_pool("lp_pool2d", x, norm_type, dims_of(kernel), dims_of(stride), options.ceil_mode);
    const Tensor means =
        avg_pool2d(pow(x, norm_type), kernel, {.stride = stride, .ceil_mode = options.ceil_mode});
    return norms_from_means(means, norm_type, kernel.h * kernel.w);
}

Tensor lp_pool3d(const Tensor& x, double norm_type, Size3 kernel, const LpPool3dOptions& options) {
    const profiler::OpScope scope("lp_pool3d");
    const Size3 stride = options.stride.value_or(kernel);
    check_lp_pool("lp_pool3d", x, norm_type, dims_of(kernel), dims_of(stride), options.ceil_mode);
    const Tensor means =
        avg_pool3d(pow(x, norm_type), kernel, {.stride = stride, .ceil_mode = options.ceil_mode});
    return norms_from_means(means, norm_type, kernel.d * kernel.h * kernel.w);
}

}  // namespace axle
