#include "kernels/ops/norm.h"

#include <limits>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Checks v, which is a weight or a bias and can be undefined. Throws ShapeError unless v is
// [width], and DTypeError unless v is floating and both v and x, or neither, are f64. Also throws
// the errors of check_device().
void check_vector(const char* op, const char* name, const Tensor& v, const Tensor& x) {
    if (!v.defined()) return;
    check_device(op, {&x, &v});
    check_floating(op, v, name);
    if (v.dim() != 1 || v.size(0) != x.size(-1))
        throw ShapeError(str(op, ": ", name, " must be [", x.size(-1), "]: ", name, " ", v.shape(),
                             ", x ", x.shape()));
    if ((v.dtype() == f64) != (x.dtype() == f64))
        throw DTypeError(str(op, ": ", name, " and x must both be float64 or neither: ", name, " ",
                             v.dtype(), ", x ", x.dtype()));
}

void check_input(const char* op, const Tensor& x) {
    check_device(op, {&x});
    check_floating(op, x);
    if (x.dim() == 0)
        throw ShapeError(str(op, ": x must have at least 1 dimension: x ", x.shape()));
}

// Returns the dtype in which rows are computed: f64 for f64, else f32.
DType row_dtype(const Tensor& x) { return x.dtype() == f64 ? f64 : f32; }

Tensor row_statistic(const Tensor& x) {
    const std::int64_t width = x.size(-1);
    return empty({width == 0 ? 0 : x.numel() / width}, {row_dtype(x), x.device()});
}

// Returns the gradients of x, weight and bias. They are composed of ops, so that they can be
// differentiated. The formula is in kernels/ops/norm.h.
Grads norm_gradients(const Tensor& dy_given, const Tensor& x_given, const Tensor& weight,
                     double eps, bool centered, Needs needs) {
    const Tensor x = to(x_given, row_dtype(x_given)), dy = to(dy_given, x.dtype());
    const Tensor c = centered ? sub(x, mean(x, {-1}, true)) : x;
    const Tensor rstd = rsqrt(add(mean(mul(c, c), {-1}, true), eps));
    const Tensor h = mul(c, rstd);
    Grads result(3);
    if (needs[0]) {
        const Tensor g = weight.defined() ? mul(dy, to(weight, x.dtype())) : dy;
        const Tensor inner = sub(g, mul(h, mean(mul(g, h), {-1}, true)));
        result[0] = mul(rstd, centered ? sub(inner, mean(g, {-1}, true)) : inner);
    }
    if (weight.defined() && needs[1]) result[1] = sum_to(mul(dy, h), weight.shape());
    if (needs[2]) result[2] = sum_to(dy, {x.size(-1)});
    return result;
}

}  // namespace

Tensor layer_norm(const Tensor& x_given, const Tensor& weight_given, const Tensor& bias_given,
                  double eps) {
    const profiler::OpScope scope("layer_norm");
    check_input("layer_norm", x_given);
    const Tensor x = autocast_to_f32(x_given), weight = autocast_to_f32(weight_given),
                 bias = autocast_to_f32(bias_given);
    check_vector("layer_norm", "weight", weight, x);
    check_vector("layer_norm", "bias", bias, x);
    Tensor y = empty_like(x), mean = row_statistic(x), rstd = row_statistic(x);
    launch(x.device(), [&](auto& on) {
        kernels::layer_norm(on, x.view(), view_or_none(weight), view_or_none(bias), eps, y.view(),
                            mean.view(), rstd.view());
    });
    return record("layer_norm", y, {x, weight, bias},
                  [x = saved(x), weight = saved(weight), mean = saved(mean), rstd = saved(rstd),
                   has_bias = bias.defined(), eps](const Grads& dy, Needs needs) -> Grads {
                      const Tensor input = x, w = weight, m = mean, r = rstd;
                      if (!has_bias) needs.bits &= 3;
                      if (grad_enabled()) return norm_gradients(dy[0], input, w, eps, true, needs);
                      const TensorOptions options = {r.dtype(), input.device()};
                      Tensor dx, dweight, dbias;
                      if (needs[0]) dx = empty_like(input);
                      if (needs[1]) dweight = empty({input.size(-1)}, options);
                      if (needs[2]) dbias = empty({input.size(-1)}, options);
                      launch(input.device(), [&](auto& on) {
                          kernels::layer_norm_backward(
                              on, dy[0].view(), input.view(), view_or_none(w), m.view(), r.view(),
                              view_or_none(dx), view_or_none(dweight), view_or_none(dbias));
                      });
                      return {dx, dweight, dbias};
                  });
}

Tensor rms_norm(const Tensor& x_given, const Tensor& weight_given,
                std::optional<double> given_eps) {
    const profiler::OpScope scope("rms_norm");
    check_input("rms_norm", x_given);
    const double eps =
        given_eps.value_or(x_given.dtype() == f64 ? std::numeric_limits<double>::epsilon()
                                                  : std::numeric_limits<float>::epsilon());
    const Tensor x = autocast_to_f32(x_given), weight = autocast_to_f32(weight_given);
    check_vector("rms_norm", "weight", weight, x);
    Tensor y = empty_like(x), rstd = row_statistic(x);
    launch(x.device(), [&](auto& on) {
        kernels::rms_norm(on, x.view(), view_or_none(weight), eps, y.view(), rstd.view());
    });
    return record("rms_norm", y, {x, weight},
                  [x = saved(x), weight = saved(weight), rstd = saved(rstd), eps](
                      const Grads& dy, Needs needs) -> Grads {
                      const Tensor input = x, w = weight, r = rstd;
                      if (grad_enabled()) {
                          Grads all = norm_gradients(dy[0], input, w, eps, false, needs);
                          all.pop_back();
                          return all;
                      }
                      Tensor dx, dweight;
                      if (needs[0]) dx = empty_like(input);
                      if (needs[1]) dweight = empty({input.size(-1)}, {r.dtype(), input.device()});
                      launch(input.device(), [&](auto& on) {
                          kernels::rms_norm_backward(on, dy[0].view(), input.view(),
                                                     view_or_none(w), r.view(), view_or_none(dx),
                                                     view_or_none(dweight));
                      });
                      return {dx, dweight};
                  });
}

}  // namespace axle
