#include "core/ops/recurrent/recurrent.h"

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/recurrent.h"

namespace axle {
namespace {

void check_step(const char* op, const Tensor& from_x, const Tensor& from_h, const Tensor& state,
                std::int64_t gates) {
    check_device(op, {&from_x, &from_h, &state});
    check_floating(op, state, "state");
    if (from_x.dtype() != state.dtype() || from_h.dtype() != state.dtype())
        throw DTypeError(str(op, ": dtypes must be equal: from_x ", from_x.dtype(), ", from_h ",
                             from_h.dtype(), ", state ", state.dtype()));
    if (state.dim() != 2 || from_x.shape() != Shape{state.size(0), gates * state.size(1)} ||
        from_h.shape() != from_x.shape())
        throw ShapeError(str(op, ": needs from_x and from_h [B, ", gates,
                             "H] and state [B, H]: from_x ", from_x.shape(), ", from_h ",
                             from_h.shape(), ", state ", state.shape()));
}

// Returns the gradient of an output, or zeros if it has none.
Tensor or_zeros(const Tensor& gradient, const Tensor& like) {
    return gradient.defined() ? gradient : zeros_like(like);
}

// Return the gradients as compositions of ops, which can be differentiated again.
Grads lstm_gradients(const Tensor& sums, const Tensor& c, const Tensor& dh, const Tensor& dc_next) {
    const std::vector<Tensor> gates = chunk(sums, 4, 1);
    const Tensor input = sigmoid(gates[0]), forget = sigmoid(gates[1]), cell = tanh(gates[2]);
    const Tensor output = sigmoid(gates[3]), bent = tanh(forget * c + input * cell);
    const Tensor dc = dc_next + dh * output * (1 - square(bent));
    const Tensor dgates = cat({dc * cell * input * (1 - input), dc * c * forget * (1 - forget),
                               dc * input * (1 - square(cell)), dh * bent * output * (1 - output)},
                              1);
    return {dgates, dgates, dc * forget};
}

Grads gru_gradients(const Tensor& from_x, const Tensor& from_h, const Tensor& h,
                    const Tensor& dnext) {
    const std::vector<Tensor> x = chunk(from_x, 3, 1), gates = chunk(from_h, 3, 1);
    const Tensor reset = sigmoid(x[0] + gates[0]), update = sigmoid(x[1] + gates[1]);
    const Tensor candidate = tanh(x[2] + reset * gates[2]);
    const Tensor dsum = dnext * (1 - update) * (1 - square(candidate));
    const Tensor dreset = dsum * gates[2] * reset * (1 - reset);
    const Tensor dupdate = dnext * (h - candidate) * update * (1 - update);
    return {cat({dreset, dupdate, dsum}, 1), cat({dreset, dupdate, dsum * reset}, 1),
            dnext * update};
}

}  // namespace

std::pair<Tensor, Tensor> lstm_step(const Tensor& from_x, const Tensor& from_h, const Tensor& c) {
    static constexpr const char* kOp = "lstm_step";
    const profiler::OpScope scope(kOp);
    check_step(kOp, from_x, from_h, c, 4);
    Tensor next_h = empty_like(c), next_c = empty_like(c);
    launch(c.device(), [&](auto& on) {
        kernels::lstm_step(on, from_x.view(), from_h.view(), c.view(), next_h.view(),
                           next_c.view());
    });
    record_outputs(kOp, {&next_h, &next_c}, {from_x, from_h, c},
                   [from_x = saved(from_x), from_h = saved(from_h), c = saved(c)](const Grads& dy,
                                                                                  Needs) -> Grads {
                       const Tensor x = from_x, h = from_h, before = c;
                       const Tensor dh = or_zeros(dy[0], before), dc = or_zeros(dy[1], before);
                       if (grad_enabled()) return lstm_gradients(x + h, before, dh, dc);
                       Tensor dgates = empty_like(h), dbefore = empty_like(before);
                       launch(before.device(), [&](auto& on) {
                           kernels::lstm_step_backward(on, x.view(), h.view(), before.view(),
                                                       dh.view(), dc.view(), dgates.view(),
                                                       dbefore.view());
                       });
                       return {dgates, dgates, dbefore};
                   });
    return {next_h, next_c};
}

Tensor gru_step(const Tensor& from_x, const Tensor& from_h, const Tensor& h) {
    static constexpr const char* kOp = "gru_step";
    const profiler::OpScope scope(kOp);
    check_step(kOp, from_x, from_h, h, 3);
    Tensor next = empty_like(h);
    launch(h.device(), [&](auto& on) {
        kernels::gru_step(on, from_x.view(), from_h.view(), h.view(), next.view());
    });
    return record(kOp, next, {from_x, from_h, h},
                  [from_x = saved(from_x), from_h = saved(from_h), h = saved(h)](const Grads& dy,
                                                                                 Needs) -> Grads {
                      const Tensor x = from_x, gates = from_h, before = h;
                      if (grad_enabled()) return gru_gradients(x, gates, before, dy[0]);
                      Tensor dx = empty_like(gates), dgates = empty_like(gates);
                      Tensor dbefore = empty_like(before);
                      launch(before.device(), [&](auto& on) {
                          kernels::gru_step_backward(on, x.view(), gates.view(), before.view(),
                                                     dy[0].view(), dx.view(), dgates.view(),
                                                     dbefore.view());
                      });
                      return {dx, dgates, dbefore};
                  });
}

}  // namespace axle
