#include "core/ops/pointwise.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

template <class F>
Tensor compare(const char* op, F f, const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope(op);
    check_device(op, {&a, &b});
    return binary_forward(op, f, a, b, promote(a, b), boolean);
}

template <class F>
Tensor compare(const char* op, F f, const Tensor& a, Scalar b) {
    const profiler::OpScope scope(op);
    check_device(op, {&a});
    const DType common = promote(a.dtype(), b);
    return binary_forward(op, f, a, scalar_operand(b, a), common, boolean);
}

}  // namespace

namespace formula = kernels::formula;

Tensor eq(const Tensor& a, const Tensor& b) { return compare("eq", formula::Equal{}, a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return compare("ne", formula::NotEqual{}, a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return compare("lt", formula::Less{}, a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return compare("le", formula::LessEqual{}, a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return compare("gt", formula::Greater{}, a, b); }
Tensor ge(const Tensor& a, const Tensor& b) { return compare("ge", formula::GreaterEqual{}, a, b); }
Tensor eq(const Tensor& a, Scalar b) { return compare("eq", formula::Equal{}, a, b); }
Tensor ne(const Tensor& a, Scalar b) { return compare("ne", formula::NotEqual{}, a, b); }
Tensor lt(const Tensor& a, Scalar b) { return compare("lt", formula::Less{}, a, b); }
Tensor le(const Tensor& a, Scalar b) { return compare("le", formula::LessEqual{}, a, b); }
Tensor gt(const Tensor& a, Scalar b) { return compare("gt", formula::Greater{}, a, b); }
Tensor ge(const Tensor& a, Scalar b) { return compare("ge", formula::GreaterEqual{}, a, b); }

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("where");
    const Device device = check_device("where", {&condition, &a, &b});
    if (condition.dtype() != boolean)
        throw DTypeError(str("where: the condition must be boolean: ", condition.dtype()));
    check_compute("where", a, "a");
    check_compute("where", b, "b");
    const DType dtype = promote(a, b);
    const Shape shape = broadcast_shapes("where", condition.shape(),
                                         broadcast_shapes("where", a.shape(), b.shape()));
    Tensor y = Tensor::empty(shape, {.dtype = dtype, .device = device});
    {
        const NoGrad no_grad;
        const Tensor c = expand(condition, shape);
        const Tensor left = expand(to(a, dtype), shape), right = expand(to(b, dtype), shape);
        launch(device, [&](auto& on) {
            kernels::where(on, c.view(), left.view(), right.view(), y.view());
        });
    }
    return record(
        "where", y, {a, b}, [condition = saved(condition)](const Grads& dy, Needs needs) -> Grads {
            const Tensor c = condition;
            const Tensor zero = zeros({}, {.dtype = dy[0].dtype(), .device = dy[0].device()});
            return {needs[0] ? where(c, dy[0], zero) : Tensor(),
                    needs[1] ? where(c, zero, dy[0]) : Tensor()};
        });
}

Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
    check_device("where", {&condition, &a});
    return where(condition, a, scalar_operand(b, a));
}
Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
    check_device("where", {&condition, &b});
    return where(condition, scalar_operand(a, b), b);
}
Tensor where(const Tensor& condition, Scalar a, Scalar b) {
    check_device("where", {&condition});
    return where(condition, tensor(a, {.device = condition.device()}),
                 tensor(b, {.device = condition.device()}));
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
    const profiler::OpScope scope("masked_fill");
    check_device("masked_fill", {&x, &mask});
    if (mask.dtype() != boolean)
        throw DTypeError(str("masked_fill: the mask must be boolean: ", mask.dtype()));
    broadcast_shapes("masked_fill", x.shape(), mask.shape());  // names the op in the error
    return where(mask, full({}, value, {.dtype = x.dtype(), .device = x.device()}), x);
}

}  // namespace axle
