// Linear layers, with product, bias and activation in one pass.
#include "core/ops/linear.h"

#include <tuple>

#include "core/autograd/autocast.h"
#include "core/autograd/deferred.h"

namespace axle {
namespace {

constexpr const char* kLinear = "linear";

Tensor bias_gradient(const Tensor& dz, DType dtype) {
    if (grad_enabled()) return dz;  // the engine computes the sum with differentiable ops
    Tensor db = empty({dz.size(-1)}, {.dtype = dtype, .device = dz.device()});
    const Tensor rows = flatten_rows(dz);
    launch(dz.device(), [&](auto& on) { kernels::column_sum(on, rows.view(), db.view()); });
    return db;
}

// Returns dz^T x. The result has the memory layout of the weight, which can be stored as [in, out].
// So it can become the weight's grad without a copy. The result has the given dtype without
// intermediate rounding. If db is defined, it receives the sum over the rows of dz in the same
// pass. While gradients are recorded, the result has the dtype of the operands, and db is not used.
Tensor weight_gradient(const Tensor& dz, const Tensor& x, const Tensor& weight, DType dtype,
                       Tensor db) {
    const bool stored_transposed = weight.strides()[0] == 1 && weight.size(1) > 1;
    const Tensor& rows = stored_transposed ? x : dz;
    const Tensor& columns = stored_transposed ? dz : x;
    const Tensor a = transpose(rows, 0, 1);
    Tensor dw;
    if (grad_enabled()) {
        dw = matmul(a, columns);
    } else {
        const profiler::OpScope scope("matmul");
        dw = empty({a.size(0), columns.size(1)}, {.dtype = dtype, .device = dz.device()});
        launch(dz.device(), [&](auto& on) {
            if (!db.defined())
                return kernels::matmul(on, a.view(), columns.view(), dw.view(),
                                       {.bypasses_caches = true});
            Tensor c = stored_transposed ? transpose(dw, 0, 1) : dw;
            kernels::matmul_row_sum(on, transpose(dz, 0, 1).view(), x.view(), c.view(), db.view());
        });
    }
    return stored_transposed ? transpose(dw, 0, 1) : dw;
}

}  // namespace

void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
    check_floating(op, x);
    check_same_dtype(op, x, weight, "x", "weight");
    if (weight.dim() != 2)
        throw ShapeError(str(op, ": weight must be [out, in]: weight ", weight.shape()));
    if (x.dim() == 0 || x.size(-1) != weight.size(1))
        throw ShapeError(str(
            op, ": the last dimension of x must be equal to dimension 1 of weight [out, in]: x ",
            x.shape(), ", weight ", weight.shape()));
    if (!bias.defined()) return;
    check_same_dtype(op, x, bias, "x", "bias");
    if (bias.shape() != Shape{weight.size(0)})
        throw ShapeError(
            str(op, ": bias must be [out]: bias ", bias.shape(), ", weight ", weight.shape()));
}

bool saves_input(Activation activation) {
    return activation != Activation::none && activation != Activation::relu;
}

Tensor activation_backward(const char* op, Activation activation, const Tensor& dy,
                           const Tensor& kept) {
    if (activation == Activation::none) return dy;
    return kernels::formula::visit_activation(activation,
                                              [&](auto f) { return slope(op, f, dy, kept); });
}

DType gradient_dtype(const Tensor& operand) {
    return is_half(operand.dtype()) && operand.is_leaf() ? f32 : operand.dtype();
}

std::pair<Tensor, Tensor> parameter_gradients(const Tensor& dz, const Tensor& x,
                                              const Tensor& weight, std::optional<DType> dw_dtype,
                                              std::optional<DType> db_dtype) {
    Tensor dw, db;
    const bool together = dw_dtype && db_dtype && !grad_enabled();
    if (together) db = empty({weight.size(0)}, {.dtype = *db_dtype, .device = dz.device()});
    if (dw_dtype) dw = weight_gradient(flatten_rows(dz), flatten_rows(x), weight, *dw_dtype, db);
    if (db_dtype && !together) db = bias_gradient(dz, *db_dtype);
    return {dw, db};
}

void defer_parameter_gradients(int weight_input, const Tensor& dz, const Tensor& x,
                               const Tensor& weight, std::optional<DType> dw_dtype,
                               std::optional<DType> db_dtype, Tensor& dw, Tensor& db) {
    if (!dw_dtype && !db_dtype) return;
    if (autograd::is_deferring() && !grad_enabled()) {
        // The operands are detached, so that the queued computation does not keep the graph in
        // memory.
        const auto queued = [dz = dz.detach(), x = x.defined() ? x.detach() : x,
                             weight = weight.detach(), dw_dtype, db_dtype] {
            auto [of_weight, of_bias] = parameter_gradients(dz, x, weight, dw_dtype, db_dtype);
            return Grads{std::move(of_weight), std::move(of_bias)};
        };
        const std::int64_t bytes =
            dz.numel() * size_of(dz.dtype()) + (x.defined() ? x.numel() * size_of(x.dtype()) : 0);
        if (autograd::defer_gradients({weight_input, weight_input + 1}, bytes, queued)) return;
    }
    std::tie(dw, db) = parameter_gradients(dz, x, weight, dw_dtype, db_dtype);
}

void write_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation,
                  const Tensor& pre, const Tensor& y) {
    const NoGrad no_grad;
    const Tensor rows = flatten_rows(x), columns = transpose(weight, 0, 1);
    Tensor out = flatten_rows(y), argument = pre.defined() ? flatten_rows(pre) : pre;
    launch(x.device(), [&](auto& on) {
        kernels::MatmulEpilogue epilogue;
        epilogue.activation = activation;
        if (bias.defined()) epilogue.bias = bias.view();
        if (argument.defined()) epilogue.pre = argument.view();
        epilogue.stores_slopes = saves_slope(activation, x.device());
        kernels::matmul(on, rows.view(), columns.view(), out.view(), epilogue);
    });
}

Tensor linear(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in,
              Activation activation) {
    const profiler::OpScope scope(kLinear);
    check_device(kLinear, {&x_in, &weight_in, bias_in.defined() ? &bias_in : &x_in});
    const Tensor x = autocast(x_in), weight = autocast(weight_in), bias = autocast(bias_in);
    check_linear(kLinear, x, weight, bias);

    Shape shape = x.shape();
    shape[shape.size() - 1] = weight.size(0);
    const TensorOptions options = {.dtype = x.dtype(), .device = x.device()};
    Tensor y = empty(shape, options), pre;
    const bool recorded = grad_enabled() && (x.requires_grad() || weight.requires_grad() ||
                                             (bias.defined() && bias.requires_grad()));
    if (recorded && saves_input(activation)) pre = empty(shape, options);
    write_linear(x, weight, bias, activation, pre, y);
    // A recorded backward pass computes the activation's input again from x, because a second
    // derivative needs the input's history.
    const bool keeps_x = weight.requires_grad() || saves_input(activation);
    const Tensor kept = activation == Activation::relu ? y : pre;
    const DType dw_dtype = gradient_dtype(weight_in);
    const DType db_dtype = bias.defined() ? gradient_dtype(bias_in) : dw_dtype;
    // The op is recorded with the operands before the casts of autocast, so that the gradients have
    // the dtypes of these operands.
    return record(kLinear, y, {x_in, weight_in, bias_in},
                  [x = saved(keeps_x ? x : Tensor()), weight = saved(weight), bias = saved(bias),
                   kept = saved(kept), activation, dw_dtype,
                   db_dtype](const Grads& dy, Needs needs) -> Grads {
                      const Tensor w = weight, b = bias;
                      const bool again = grad_enabled() && saves_input(activation);
                      const Tensor at = again ? linear(x, w, b) : kept.get();
                      const Tensor dz = !again && saves_slope(activation, dy[0].device())
                                            ? dy[0] * at
                                            : activation_backward(kLinear, activation, dy[0], at);
                      Grads result(3);
                      if (needs[0]) result[0] = matmul(dz, w);
                      defer_parameter_gradients(
                          1, dz, x, w, needs[1] ? std::optional(dw_dtype) : std::nullopt,
                          needs[2] ? std::optional(db_dtype) : std::nullopt, result[1], result[2]);
                      return result;
                  });
}

}  // namespace axle
