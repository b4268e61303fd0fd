#include "kernels/ops/channel_norm.h"

#include <algorithm>
#include <utility>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

void check_input(const char* op, const Tensor& x) {
    check_device(op, {&x});
    check_floating(op, x);
    if (x.dim() < 2) throw ShapeError(str(op, ": x must be [N, C, ...]: x ", x.shape()));
}

void check_spatial(const char* op, const Tensor& x) {
    check_input(op, x);
    if (x.dim() < 3)
        throw ShapeError(
            str(op, ": x must have at least three dimensions [N, C, ...]: x ", x.shape()));
}

// Checks v, which is a weight or another per-channel vector and can be undefined. Throws ShapeError
// unless v is [C], and DTypeError unless v is floating and both v and x, or neither, are f64. Also
// throws the errors of check_device().
void check_channels(const char* op, const char* name, const Tensor& v, const Tensor& x) {
    if (!v.defined()) return;
    check_device(op, {&x, &v});
    check_floating(op, v, name);
    if (v.dim() != 1 || v.size(0) != x.size(1))
        throw ShapeError(str(op, ": ", name, " must be [", x.size(1), "]: ", name, " ", v.shape(),
                             ", x ", x.shape()));
    if ((v.dtype() == f64) != (x.dtype() == f64))
        throw DTypeError(str(op, ": ", name, " and x must both be float64 or neither: ", name, " ",
                             v.dtype(), ", x ", x.dtype()));
}

// Returns the dtype and device of the statistics and of the parameters' gradients.
TensorOptions statistics_of(const Tensor& x) {
    return {.dtype = x.dtype() == f64 ? f64 : f32, .device = x.device()};
}

// Reshapes [C] to [1, C, 1, ...], which broadcasts over x.
Tensor along_channels(const Tensor& v, const Tensor& x) {
    Dims sizes;
    for (int d = 0; d < x.dim(); ++d) sizes.push_back(d == 1 ? v.size(0) : 1);
    return reshape(v, sizes);
}
Dims all_but_channels(const Tensor& x) {
    Dims dims = {0};
    for (int d = 2; d < x.dim(); ++d) dims.push_back(d);
    return dims;
}

// Returns the requested gradients of x, weight and bias in the dtype of the statistics. They are
// composed of ops, so that they can be differentiated. h is the normalized x. g_to_x converts the
// gradient of h to the gradient of x. The formulas are in kernels/ops/channel_norm.h.
template <class F>
Grads composed_gradients(const Tensor& dy, const Tensor& h, const Tensor& weight, Needs needs,
                         F g_to_x) {
    Grads result(3);
    if (needs[0])
        result[0] =
            g_to_x(weight.defined() ? mul(dy, along_channels(to(weight, dy.dtype()), dy)) : dy);
    if (needs[1]) result[1] = sum(mul(dy, h), all_but_channels(dy));
    if (needs[2]) result[2] = sum(dy, all_but_channels(dy));
    return result;
}

// Returns the gradient of x, given the gradient g of h = (x - mean) * rstd, where mean and rstd are
// the statistics of x over `dims`.
Tensor input_gradient(const Tensor& g, const Tensor& h, const Tensor& rstd, const Dims& dims) {
    return mul(rstd, sub(sub(g, mean(g, dims, true)), mul(h, mean(mul(g, h), dims, true))));
}

// Returns the gradients of batch_norm. given_mean and given_rstd are the values of the forward
// pass. If own is true, they are x's own statistics and are recomputed, so that they can be
// differentiated.
Grads batch_norm_gradients(const Tensor& dy_given, const Tensor& x_given, const Tensor& weight,
                           const Tensor& given_mean, const Tensor& given_rstd, bool own, double eps,
                           Needs needs) {
    const DType dtype = given_rstd.dtype();
    const Tensor dy = to(dy_given, dtype), x = to(x_given, dtype);
    const Dims dims = all_but_channels(x);
    const Tensor centered = sub(x, own ? mean(x, dims, true) : along_channels(given_mean, x));
    const Tensor rstd = own ? rsqrt(add(mean(mul(centered, centered), dims, true), eps))
                            : along_channels(given_rstd, x);
    const Tensor h = mul(centered, rstd);
    return composed_gradients(dy, h, weight, needs, [&](const Tensor& g) {
        return own ? input_gradient(g, h, rstd, dims) : mul(g, rstd);
    });
}

Grads group_norm_gradients(const Tensor& dy_given, const Tensor& x_given, std::int64_t groups,
                           const Tensor& weight, double eps, DType dtype, Needs needs) {
    const Tensor dy = to(dy_given, dtype);
    const Shape& shape = x_given.shape();
    const Shape grouped = {shape[0], groups,
                           shape[0] * groups == 0 ? 0 : x_given.numel() / (shape[0] * groups)};
    const Tensor x = reshape(to(x_given, dtype), grouped);
    const Tensor centered = sub(x, mean(x, {-1}, true));
    const Tensor rstd = rsqrt(add(mean(mul(centered, centered), {-1}, true), eps));
    const Tensor h = mul(centered, rstd);
    return composed_gradients(dy, reshape(h, shape), weight, needs, [&](const Tensor& g) {
        return reshape(input_gradient(reshape(g, grouped), h, rstd, {-1}), shape);
    });
}

// The requested gradients, which are allocated here and filled by a kernel.
struct RequestedGrads {
    Tensor dx, dweight, dbias;

    RequestedGrads(const Tensor& x, Needs needs) {
        if (needs[0]) dx = empty_like(x);
        if (needs[1]) dweight = empty({x.size(1)}, statistics_of(x));
        if (needs[2]) dbias = empty({x.size(1)}, statistics_of(x));
    }
    Grads grads() const { return {dx, dweight, dbias}; }
};

// Returns `needs` without the gradients of undefined parameters.
Needs drop_undefined(Needs needs, bool has_weight, bool has_bias) {
    needs.bits &= 1U | (has_weight ? 2U : 0U) | (has_bias ? 4U : 0U);
    return needs;
}

void check_batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                      const Tensor& weight, const Tensor& bias, bool training) {
    constexpr const char* kOp = "batch_norm";
    check_input(kOp, x);
    check_channels(kOp, "running_mean", running_mean, x);
    check_channels(kOp, "running_var", running_var, x);
    check_channels(kOp, "weight", weight, x);
    check_channels(kOp, "bias", bias, x);
    if (!training && !(running_mean.defined() && running_var.defined()))
        throw UsageError(str(kOp, ": running_mean and running_var are needed outside training: x ",
                             x.shape(), "; pass both, or pass training = true"));
    if (training && x.numel() == x.size(1) && x.numel() > 0)
        throw ShapeError(
            str(kOp, ": expected more than 1 value per channel when training: x ", x.shape()));
    if (!training) return;
    for (const Tensor& running : {running_mean, running_var})
        if (running.defined()) check_in_place(kOp, running);
}

}  // namespace

Tensor batch_norm(const Tensor& x, Tensor running_mean, Tensor running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps) {
    const profiler::OpScope scope("batch_norm");
    check_batch_norm(x, running_mean, running_var, weight, bias, training);
    Tensor y = empty_like(x), mean, rstd;
    if (training) {
        mean = empty({x.size(1)}, statistics_of(x)), rstd = empty_like(mean);
        if (x.numel() > 0) {
            launch(x.device(), [&](auto& on) {
                kernels::batch_norm(on, x.view(), view_or_none(weight), view_or_none(bias), eps,
                                    y.view(), mean.view(), rstd.view(), view_or_none(running_mean),
                                    view_or_none(running_var), momentum);
            });
            for (const Tensor& running : {running_mean, running_var})
                if (running.defined()) running.impl()->storage->bump_version();
        }
    } else {
        const NoGrad no_grad;
        const DType dtype = statistics_of(x).dtype;
        mean = clone(to(running_mean, dtype));  // training can change running_mean before backward
        rstd = rsqrt(add(to(running_var, dtype), eps));
        launch(x.device(), [&](auto& on) {
            kernels::batch_norm_apply(on, x.view(), std::as_const(mean).view(),
                                      std::as_const(rstd).view(), view_or_none(weight),
                                      view_or_none(bias), y.view());
        });
    }
    return record(
        "batch_norm", y, {x, weight, bias},
        [x = saved(x), weight = saved(weight), mean = saved(mean), rstd = saved(rstd),
         has_bias = bias.defined(), training, eps](const Grads& dy, Needs needs) -> Grads {
            const Tensor input = x, w = weight, m = mean, r = rstd;
            needs = drop_undefined(needs, w.defined(), has_bias);
            if (grad_enabled())
                return batch_norm_gradients(dy[0], input, w, m, r, training, eps, needs);
            RequestedGrads requested(input, needs);
            launch(input.device(), [&](auto& on) {
                kernels::batch_norm_backward(
                    on, dy[0].view(), input.view(), view_or_none(w), m.view(), r.view(), training,
                    view_or_none(requested.dx), view_or_none(requested.dweight),
                    view_or_none(requested.dbias));
            });
            return requested.grads();
        });
}

Tensor group_norm(const Tensor& x_given, std::int64_t groups, const Tensor& weight_given,
                  const Tensor& bias_given, double eps) {
    const profiler::OpScope scope("group_norm");
    check_input("group_norm", x_given);
    if (groups < 1 || x_given.size(1) % groups != 0)
        throw ShapeError(str("group_norm: groups must be positive and divide the channels: ",
                             groups, " groups, x ", x_given.shape()));
    const Tensor x = autocast_to_f32(x_given), weight = autocast_to_f32(weight_given),
                 bias = autocast_to_f32(bias_given);
    check_channels("group_norm", "weight", weight, x);
    check_channels("group_norm", "bias", bias, x);
    Tensor y = empty_like(x), mean = empty({x.size(0), groups}, statistics_of(x));
    Tensor rstd = empty_like(mean);
    launch(x.device(), [&](auto& on) {
        kernels::group_norm(on, x.view(), groups, view_or_none(weight), view_or_none(bias), eps,
                            y.view(), mean.view(), rstd.view());
    });
    return record("group_norm", y, {x, weight, bias},
                  [x = saved(x), weight = saved(weight), mean = saved(mean), rstd = saved(rstd),
                   has_bias = bias.defined(), groups, eps](const Grads& dy, Needs needs) -> Grads {
                      const Tensor input = x, w = weight, m = mean, r = rstd;
                      needs = drop_undefined(needs, w.defined(), has_bias);
                      if (grad_enabled())
                          return group_norm_gradients(dy[0], input, groups, w, eps, r.dtype(),
                                                      needs);
                      RequestedGrads requested(input, needs);
                      launch(input.device(), [&](auto& on) {
                          kernels::group_norm_backward(
                              on, dy[0].view(), input.view(), groups, view_or_none(w), m.view(),
                              r.view(), view_or_none(requested.dx), view_or_none(requested.dweight),
                              view_or_none(requested.dbias));
                      });
                      return requested.grads();
                  });
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
    const profiler::OpScope scope("instance_norm");
    check_spatial("instance_norm", x);
    check_channels("instance_norm", "weight", weight, x);
    check_channels("instance_norm", "bias", bias, x);
    return group_norm(x, std::max<std::int64_t>(1, x.size(1)), weight, bias, eps);
}

Tensor local_response_norm(const Tensor& x, std::int64_t size,
                           const LocalResponseNormOptions& options) {
    const profiler::OpScope scope("local_response_norm");
    check_spatial("local_response_norm", x);
    if (size < 1) throw ValueError(str("local_response_norm: size must be positive: ", size));
    const Tensor wide = is_half(x.dtype()) ? to(x, f32) : x;
    Dims padding;
    for (int d = 2; d < x.dim(); ++d) padding.push_back(0), padding.push_back(0);
    padding.push_back(size / 2), padding.push_back((size - 1) / 2);
    const Tensor squares = pad(square(wide), padding);
    Tensor total = narrow(squares, 1, 0, x.size(1));
    for (std::int64_t i = 1; i < size; ++i) total = add(total, narrow(squares, 1, i, x.size(1)));
    const double factor = options.alpha / static_cast<double>(size);
    return to(div(wide, pow(add(mul(total, factor), options.k), options.beta)), x.dtype());
}

}  // namespace axle
