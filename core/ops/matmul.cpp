// Matrix products. A batch that meets a single matrix becomes more rows of one product, forward and
// in the gradient of the matrix.
#include "kernels/matmul.h"

#include "core/autocast.h"
#include "core/ops/pointwise.h"
#include "core/profiler.h"

namespace axle::inline v0 {
namespace {

// The view of x [..., r, c] with the batch dimensions of the product: stride 0 where x repeats.
ConstView with_batch(const Tensor& x, const Shape& batch) {
    const ConstView v = x.view();
    ConstView result;
    result.data = v.data, result.dtype = v.dtype, result.ndim = batch.size() + 2;
    const int missing = result.ndim - v.ndim;
    for (int d = 0; d < result.ndim; ++d) {
        const bool repeats = d < missing || (d < batch.size() && v.shape[d - missing] != batch[d]);
        result.shape[d] = d < batch.size() ? batch[d] : v.shape[d - missing];
        result.stride[d] = repeats ? 0 : v.stride[d - missing];
    }
    return result;
}

Shape batch_of(const Tensor& x) {
    Shape shape = x.shape();
    shape.erase(shape.size() - 1);
    shape.erase(shape.size() - 1);
    return shape;
}

// [..., width] as [rows, width]
Tensor fold(const Tensor& x) {
    if (x.dim() == 2) return x;
    std::int64_t rows = 1;
    for (int d = 0; d + 1 < x.dim(); ++d) rows *= x.shape()[d];
    return reshape(x, {rows, x.shape().back()});
}

Shape common_batch(const Tensor& a, const Tensor& b) {
    const Shape left = batch_of(a), right = batch_of(b);
    if (left == right) return left;
    try {
        return broadcast_shapes("matmul", left, right);
    } catch (const ShapeError&) {
        throw ShapeError(str("matmul: batches don't broadcast: ", a.shape(), " @ ", b.shape()));
    }
}

// Two tensors of at least two dimensions and one dtype, whose inner dimensions agree.
Tensor product(const Tensor& a, const Tensor& b) {
    const Shape batch = common_batch(a, b);
    Shape shape = batch;
    shape.push_back(a.size(-2));
    shape.push_back(b.size(-1));
    Tensor c = Tensor::empty(shape, {.dtype = a.dtype(), .device = a.device()});
    launch(a.device(), [&](auto& on) {
        kernels::matmul(on, with_batch(a, batch), with_batch(b, batch), c.view());
    });
    // Each factor is kept for the gradient of the other alone.
    return record(
        "matmul", c, {a, b},
        [a = saved(b.requires_grad() ? a : Tensor()), b = saved(a.requires_grad() ? b : Tensor())](
            const Grads& dy, Needs needs) -> Grads {
            Grads result(2);
            if (needs[0]) result[0] = matmul(dy[0], transpose(b, -2, -1));
            if (needs[1]) result[1] = matmul(transpose(a, -2, -1), dy[0]);
            return result;
        });
}

}  // namespace

Tensor matmul(const Tensor& a_in, const Tensor& b_in) {
    const profiler::OpScope scope("matmul");
    check_device("matmul", {&a_in, &b_in});
    const Tensor a = autocast(a_in), b = autocast(b_in);
    check_compute("matmul", a);
    check_same_dtype("matmul", a, b);
    if (a.dtype() == boolean)
        throw DTypeError("matmul: booleans have no product, convert them to an integer dtype");
    if (a.dim() == 0 || b.dim() == 0)
        throw ShapeError(str("matmul: a 0-d operand, use mul: ", a.shape(), " @ ", b.shape()));
    if (a.size(-1) != b.size(b.dim() == 1 ? 0 : -2))
        throw ShapeError(str("matmul: inner dimensions differ: ", a.shape(), " @ ", b.shape()));

    if (a.dim() == 1) return squeeze(matmul(unsqueeze(a, 0), b), b.dim() == 1 ? 0 : -2);
    if (b.dim() == 1) return squeeze(matmul(a, unsqueeze(b, 1)), -1);
    if (a.dim() == 2 || b.dim() > 2) return product(a, b);
    Shape shape = a.shape();
    shape[shape.size() - 1] = b.size(1);
    return view(product(fold(a), b), shape);
}

namespace {

// f(formula) for an activation that is not none.
template <class F>
Tensor with_formula(Activation activation, F&& f) {
    switch (activation) {
        case Activation::relu:
            return f(kernels::formula::Relu{});
        case Activation::gelu:
            return f(kernels::formula::Gelu{});
        case Activation::gelu_tanh:
            return f(kernels::formula::GeluTanh{});
        default:
            return f(kernels::formula::Silu{});
    }
}

kernels::Activation kernel_activation(Activation activation) {
    static_assert(static_cast<int>(Activation::relu) ==
                  static_cast<int>(kernels::Activation::relu));
    static_assert(static_cast<int>(Activation::gelu) ==
                  static_cast<int>(kernels::Activation::gelu));
    static_assert(static_cast<int>(Activation::gelu_tanh) ==
                  static_cast<int>(kernels::Activation::gelu_tanh));
    static_assert(static_cast<int>(Activation::silu) ==
                  static_cast<int>(kernels::Activation::silu));
    return static_cast<kernels::Activation>(activation);
}

// Whether the slope is written in the argument of the activation and not in its value.
bool keeps_argument(Activation activation) {
    return activation != Activation::none && activation != Activation::relu;
}

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    check_floating("linear", x);
    check_same_dtype("linear", x, weight);
    if (weight.dim() != 2)
        throw ShapeError(str("linear: weight must be [out, in]: ", weight.shape()));
    if (x.dim() == 0 || x.size(-1) != weight.size(1))
        throw ShapeError(str("linear: the width of x is not that of weight [out, in]: x ",
                             x.shape(), ", weight ", weight.shape()));
    if (!bias.defined()) return;
    check_same_dtype("linear", x, bias);
    if (bias.shape() != Shape{weight.size(0)})
        throw ShapeError(
            str("linear: bias must be [out]: bias ", bias.shape(), ", weight ", weight.shape()));
}

// dy behind the activation; `kept` is what the activation's slope is written in.
Tensor through_activation(Activation activation, const Tensor& dy, const Tensor& kept) {
    if (activation == Activation::none) return dy;
    return with_formula(activation, [&](auto f) { return slope("linear", f, dy, kept); });
}

// That in which the engine takes the gradient of an operand, were it narrower until a cast.
DType gradient_dtype(const Tensor& operand) {
    return is_half(operand.dtype()) && operand.is_leaf() ? f32 : operand.dtype();
}

Tensor bias_gradient(const Tensor& dz, DType dtype) {
    if (grad_enabled()) return dz;  // the engine sums it, differentiably
    Tensor db = empty({dz.size(-1)}, {.dtype = dtype, .device = dz.device()});
    const Tensor rows = fold(dz);
    launch(dz.device(), [&](auto& on) { kernels::column_sum(on, rows.view(), db.view()); });
    return db;
}

}  // namespace

namespace {

// dz^T x, laid out in memory as the weight is: one that is stored [in, out] gets a gradient that
// its leaf can take over without a copy, and in the leaf's dtype without being rounded before.
// A db that is defined gets the sum over the rows of dz, which are read anyway.
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
            if (!db.defined()) return kernels::matmul(on, a.view(), columns.view(), dw.view());
            Tensor c = stored_transposed ? transpose(dw, 0, 1) : dw;
            kernels::matmul_row_sum(on, transpose(dz, 0, 1).view(), x.view(), c.view(), db.view());
        });
    }
    return stored_transposed ? transpose(dw, 0, 1) : dw;
}

}  // namespace

Tensor linear(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in,
              Activation activation) {
    const profiler::OpScope scope("linear");
    check_device("linear", {&x_in, &weight_in, bias_in.defined() ? &bias_in : &x_in});
    const Tensor x = autocast(x_in), weight = autocast(weight_in), bias = autocast(bias_in);
    check_linear(x, weight, bias);

    Shape shape = x.shape();
    shape[shape.size() - 1] = weight.size(0);
    const TensorOptions options = {.dtype = x.dtype(), .device = x.device()};
    Tensor y = empty(shape, options), pre;
    const bool recorded = grad_enabled() && (x.requires_grad() || weight.requires_grad() ||
                                             (bias.defined() && bias.requires_grad()));
    if (recorded && keeps_argument(activation)) pre = empty(shape, options);
    {
        const NoGrad no_grad;
        const Tensor rows = fold(x), columns = transpose(weight, 0, 1);
        Tensor out = fold(y), argument = pre.defined() ? fold(pre) : pre;
        launch(x.device(), [&](auto& on) {
            kernels::MatmulEpilogue epilogue;
            epilogue.activation = kernel_activation(activation);
            if (bias.defined()) epilogue.bias = bias.view();
            if (argument.defined()) epilogue.pre = argument.view();
            kernels::matmul(on, rows.view(), columns.view(), out.view(), epilogue);
        });
    }
    // A second derivative needs the argument with its history, and computes it again.
    const bool keeps_x = weight.requires_grad() || keeps_argument(activation);
    const Tensor kept = activation == Activation::relu ? y : pre;
    const DType dw_dtype = gradient_dtype(weight_in);
    const DType db_dtype = bias.defined() ? gradient_dtype(bias_in) : dw_dtype;
    // Gradients go to the operands as they came, past autocast.
    return record("linear", y, {x_in, weight_in, bias_in},
                  [x = saved(keeps_x ? x : Tensor()), weight = saved(weight), bias = saved(bias),
                   kept = saved(kept), activation, dw_dtype,
                   db_dtype](const Grads& dy, Needs needs) -> Grads {
                      const Tensor w = weight, b = bias;
                      const bool again = grad_enabled() && keeps_argument(activation);
                      const Tensor dz = through_activation(activation, dy[0],
                                                           again ? linear(x, w, b) : kept.get());
                      Grads result(3);
                      Tensor& db = result[2];
                      const bool wants_db = needs[2] && b.defined();
                      const bool together = wants_db && needs[1] && !grad_enabled();
                      if (together)
                          db = empty(b.shape(), {.dtype = db_dtype, .device = dz.device()});
                      if (needs[0]) result[0] = matmul(dz, w);
                      if (needs[1]) result[1] = weight_gradient(fold(dz), fold(x), w, dw_dtype, db);
                      if (wants_db && !together) db = bias_gradient(dz, db_dtype);
                      return result;
                  });
}

}  // namespace axle::inline v0
