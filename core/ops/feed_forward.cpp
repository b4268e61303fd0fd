// Two linear layers with an activation between them. Because they are one op, the backward pass
// multiplies the product with weight2 by the activation's derivative while it writes the product.
// This saves one pass over the hidden gradient, unless the backward pass is recorded.
#include <array>

#include "core/autograd/autocast.h"
#include "core/ops/linear.h"

namespace axle {
namespace {

constexpr const char* kFeedForward = "feed_forward";

// Returns (dy weight2) * activation'(at), the gradient of the activation's input. For relu, `at` is
// the activation's output, otherwise its input. If saves_slope() is true and the call is not
// recorded, `at` is the derivative.
Tensor hidden_gradient(const Tensor& dy, const Tensor& weight2, Activation activation,
                       const Tensor& at) {
    if (grad_enabled())
        return activation_backward(kFeedForward, activation, matmul(dy, weight2), at);
    const profiler::OpScope scope("matmul");
    Shape shape = dy.shape();
    shape[shape.size() - 1] = weight2.size(1);
    const Tensor dz = empty(shape, {.dtype = dy.dtype(), .device = dy.device()});
    const Tensor rows = flatten_rows(dy),
                 slope_of = activation == Activation::none ? at : flatten_rows(at);
    Tensor out = flatten_rows(dz);
    launch(dy.device(), [&](auto& on) {
        kernels::MatmulEpilogue epilogue;
        epilogue.activation = activation;
        if (activation != Activation::none) epilogue.slope_of = slope_of.view();
        epilogue.stores_slopes = saves_slope(activation, dy.device());
        kernels::matmul(on, rows.view(), weight2.view(), out.view(), epilogue);
    });
    return dz;
}

}  // namespace

Tensor feed_forward(const Tensor& x_in, const Tensor& weight1_in, const Tensor& bias1_in,
                    const Tensor& weight2_in, const Tensor& bias2_in, Activation activation) {
    const profiler::OpScope scope(kFeedForward);
    const auto present = [&](const Tensor& t) { return t.defined() ? &t : &x_in; };
    check_device(kFeedForward,
                 {&x_in, &weight1_in, present(bias1_in), &weight2_in, present(bias2_in)});
    const Tensor x = autocast(x_in), weight1 = autocast(weight1_in), bias1 = autocast(bias1_in);
    const Tensor weight2 = autocast(weight2_in), bias2 = autocast(bias2_in);
    check_linear(kFeedForward, x, weight1, bias1);
    if (weight2.dim() != 2 || weight2.size(1) != weight1.size(0))
        throw ShapeError(str("feed_forward: weight2 must be [out, ", weight1.size(0), "]: weight1 ",
                             weight1.shape(), ", weight2 ", weight2.shape()));

    const TensorOptions options = {.dtype = x.dtype(), .device = x.device()};
    Shape shape = x.shape();
    shape[shape.size() - 1] = weight1.size(0);
    Tensor hidden = empty(shape, options), pre;
    check_linear(kFeedForward, hidden, weight2, bias2);
    shape[shape.size() - 1] = weight2.size(0);
    const Tensor y = empty(shape, options);
    const autograd::Input first_layer[] = {x, weight1, bias1};
    const bool needs_input_grads = autograd::is_recorded(first_layer);
    if (needs_input_grads && saves_input(activation)) pre = empty_like(hidden);
    write_linear(x, weight1, bias1, activation, pre, hidden);
    write_linear(hidden, weight2, bias2, Activation::none, {}, y);
    const bool keeps_hidden =
        weight2.requires_grad() || (needs_input_grads && activation == Activation::relu);

    const auto dtype_of = [](const Tensor& t) { return t.defined() ? gradient_dtype(t) : f32; };
    const std::array dtypes = {dtype_of(x_in), dtype_of(weight1_in), dtype_of(bias1_in),
                               dtype_of(weight2_in), dtype_of(bias2_in)};
    return record(kFeedForward, y, {x_in, weight1_in, bias1_in, weight2_in, bias2_in},
                  [x = saved(needs_input_grads ? x : Tensor()), weight1 = saved(weight1),
                   bias1 = saved(bias1), pre = saved(pre),
                   hidden = saved(keeps_hidden ? hidden : Tensor()), weight2 = saved(weight2),
                   activation, dtypes, needs_input_grads](const Grads& dy, Needs needs) -> Grads {
                      const auto requested = [&](int i) {
                          return needs[i] ? std::optional(dtypes[static_cast<std::size_t>(i)])
                                          : std::nullopt;
                      };
                      Tensor h = hidden, at = saves_input(activation) ? pre.get() : h;
                      const Tensor in = x, w1 = weight1, w2 = weight2;
                      // The hidden layer is computed again, because a second derivative needs its
                      // history.
                      if (needs_input_grads && grad_enabled()) {
                          const Tensor b1 = bias1;
                          h = linear(in, w1, b1, activation);
                          at = saves_input(activation) ? linear(in, w1, b1) : h;
                      }
                      Grads result(5);
                      defer_parameter_gradients(3, dy[0], h, w2, requested(3), requested(4),
                                                result[3], result[4]);
                      if (!needs_input_grads) return result;
                      const Tensor dz = hidden_gradient(dy[0], w2, activation, at);
                      if (needs[0]) result[0] = matmul(dz, w1);
                      defer_parameter_gradients(1, dz, in, w1, requested(1), requested(2),
                                                result[1], result[2]);
                      return result;
                  });
}

}  // namespace axle
