// Norms, renorm(), standard deviations, var_mean() and std_mean().
#include <cmath>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/reductions/reduced.h"
#include "core/profiler/profiler.h"

namespace axle {

Tensor root_of_squares(const Tensor& x) {
    const Tensor y = sqrt(x.detach());
    return record("sqrt", y, {x}, [y = saved(y)](const Grads& dy, Needs) -> Grads {
        const Tensor root = y, is_zero = eq(root.detach(), 0);
        const Tensor slope = div(0.5, masked_fill(root, is_zero, 1));
        return {mul(dy[0], masked_fill(slope, is_zero, 0))};
    });
}

namespace {

// Returns the p-norm for a finite p other than 0, 1 and 2. The gradient is sign(x) |x|^(p - 1) /
// y^(p - 1), and 0 where x or the norm y is 0.
Tensor power_norm(const char* op, const Tensor& x, double p, const Reduced& r) {
    Tensor y;
    {
        const NoGrad no_grad;
        const Tensor size = add(abs(x), 0.0);  // 0 instead of -0, whose powers can be -inf
        y = pow(sum(pow(size, p), r.dims, true), 1 / p);
        y = reshape(y, r.result);
    }
    return record(op, y, {x},
                  [x = saved(x), y = saved(y), p, kept = r.kept](const Grads& dy, Needs) -> Grads {
                      const Tensor at = x, norms = reshape(y, kept);
                      const Tensor x_is_zero = eq(at.detach(), 0),
                                   y_is_zero = eq(norms.detach(), 0);
                      const Tensor ratio =
                          div(masked_fill(abs(at), x_is_zero, 1), masked_fill(norms, y_is_zero, 1));
                      const Tensor slope = mul(sign(at), pow(ratio, p - 1));
                      return {mul(reshape(dy[0], kept), masked_fill(slope, y_is_zero, 0))};
                  });
}

// Returns the number of elements that are not 0. The gradient is 0.
Tensor zero_norm(const char* op, const Tensor& x, const Reduced& r) {
    const Tensor y = to(reshape(count_nonzero(x.detach(), r.dims), r.result), x.dtype());
    return record(op, y, {x}, [shape = x.shape()](const Grads& dy, Needs) -> Grads {
        return {zeros(shape, {.dtype = dy[0].dtype(), .device = dy[0].device()})};
    });
}

Tensor norm_over(const char* op, const Tensor& input, double p, const Dims& dims, bool keepdim) {
    const profiler::OpScope scope(op);
    const Reduced r = reduced(op, input, dims, keepdim);
    check_floating(op, input);
    if (std::isnan(p)) throw ValueError(str(op, ": p must not be NaN"));
    if (p < 0 || std::isinf(p)) check_not_empty(op, input, r);
    const Tensor original = autocast_to_f32(input), x = widened(original);
    Tensor y;
    if (std::isinf(p))
        y = p > 0 ? max(abs(x), r.dims, keepdim) : min(abs(x), r.dims, keepdim);
    else if (p == 0)
        y = zero_norm(op, x, r);
    else if (p == 1)
        y = sum(abs(x), r.dims, keepdim);
    else if (p == 2)
        y = root_of_squares(sum(square(x), r.dims, keepdim));
    else
        y = power_norm(op, x, p, r);
    return to(y, original.dtype());
}

}  // namespace

Tensor vector_norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
    return norm_over("vector_norm", x, p, dims, keepdim);
}
Tensor norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
    return norm_over("norm", x, p, dims, keepdim);
}

Tensor renorm(const Tensor& input, double p, std::int64_t dim, double max_norm) {
    const profiler::OpScope scope("renorm");
    check_device("renorm", {&input});
    check_floating("renorm", input);
    if (input.dim() < 2)
        throw ShapeError(str("renorm: needs at least 2 dimensions: x ", input.shape()));
    if (!(p > 0)) throw ValueError(str("renorm: p must be positive: ", p));
    if (!(max_norm >= 0)) throw ValueError(str("renorm: max_norm must be at least 0: ", max_norm));
    const Tensor original = autocast_to_f32(input), x = widened(original);
    const int kept = wrap_dim("renorm", dim, x.dim());
    Dims dims;
    for (int d = 0; d < x.dim(); ++d)
        if (d != kept) dims.push_back(d);
    const Tensor norms = vector_norm(x, p, dims, true);
    // The constant 1e-7 is the same as in PyTorch.
    const Tensor factor = div(max_norm, add(norms, 1e-7));
    const Tensor limited = where(gt(norms.detach(), max_norm), factor, 1);
    return to(mul(x, limited), original.dtype());
}

Tensor std(const Tensor& input, const Dims& dims, double correction, bool keepdim) {
    const profiler::OpScope scope("std");
    const Reduced r = reduced("std", input, dims, keepdim);
    check_floating("std", input);
    const Tensor variance = var(widened(input), r.dims, correction, keepdim);
    return to(root_of_squares(variance), input.dtype());
}

std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims, double correction,
                                   bool keepdim) {
    const profiler::OpScope scope("var_mean");
    const Reduced r = reduced("var_mean", x, dims, keepdim);
    check_floating("var_mean", x);
    return {var(x, r.dims, correction, keepdim), mean(x, r.dims, keepdim)};
}

std::pair<Tensor, Tensor> std_mean(const Tensor& x, const Dims& dims, double correction,
                                   bool keepdim) {
    const profiler::OpScope scope("std_mean");
    const Reduced r = reduced("std_mean", x, dims, keepdim);
    check_floating("std_mean", x);
    return {axle::std(x, r.dims, correction, keepdim), mean(x, r.dims, keepdim)};
}

}  // namespace axle
