// In-place arithmetic and compound assignment.
#include "core/autograd/in_place.h"

#include <utility>

#include "core/ops/pointwise.h"

namespace axle {
namespace {

namespace formula = kernels::formula;

// Throws ShapeError or DTypeError unless x can store the result of an op on x and an operand of
// this shape and dtype.
void check_result(const char* op, const Tensor& x, const Shape& operand, DType dtype) {
    if (broadcast_shapes(op, x.shape(), operand) != x.shape())
        throw ShapeError(
            str(op, ": the operand cannot be broadcast to the tensor that is changed: operand ",
                operand, ", tensor ", x.shape()));
    if (is_floating(dtype) && !is_floating(x.dtype()))
        throw DTypeError(str(op, ": a result of dtype ", dtype,
                             " cannot be stored in a tensor of dtype ", x.dtype(),
                             "; convert the tensor with to(f32) first"));
    if (x.dtype() == boolean && dtype != boolean)
        throw DTypeError(str(op, ": a result of dtype ", dtype,
                             " cannot be stored in a boolean tensor; convert "
                             "the tensor with to(i64) first"));
}

DType dtype_of(Scalar value) { return value.is_bool() ? boolean : value.is_integral() ? i64 : f32; }

// Returns alpha * other, as booleans if x and other are boolean and alpha is integral.
Tensor scaled(const Tensor& x, const Tensor& other, Scalar alpha) {
    if (alpha.to_double() == 1) return other;
    const Tensor product = axle::mul(other, alpha);
    const bool is_boolean = x.dtype() == boolean && other.dtype() == boolean;
    return is_boolean && alpha.is_integral() ? to(product, boolean) : product;
}

// Computes x = f(x, other), where other is broadcast to x's shape and converted to x's dtype.
template <class F>
void update(const char* op, Tensor& x, const Tensor& other, F f) {
    const profiler::OpScope scope(op);
    check_in_place(op, x);
    check_device(op, {&x, &other});
    check_compute(op, x);
    check_result(op, x, other.shape(), other.dtype());
    const Tensor operand = expand(to(without_overlap(x, other.detach()), x.dtype()), x.shape());
    launch(x.device(), [&](auto& on) {
        kernels::binary(on, f, std::as_const(x).view(), operand.view(), x.view());
    });
    x.impl()->storage->bump_version();
}

// Computes x = f(x). x must be able to store the dtype of f's parameter.
template <class F>
void update(const char* op, Tensor& x, DType parameter, F f) {
    const profiler::OpScope scope(op);
    check_in_place(op, x);
    check_compute(op, x);
    check_result(op, x, {}, parameter);
    launch(x.device(), [&](auto& on) { kernels::unary(on, f, std::as_const(x).view(), x.view()); });
    x.impl()->storage->bump_version();
}

// Computes x = f(x, value). `with_value` is the unary form of f, whose parameter is the value.
template <class F, class WithValue>
void update(const char* op, Tensor& x, Scalar value, F f, WithValue with_value) {
    if (x.defined() && needs_operand(value, x)) return update(op, x, scalar_operand(value, x), f);
    update(op, x, dtype_of(value), with_value);
}

// If the op is recorded, replaces x by compute(before). Otherwise calls change(), which changes x
// in place.
template <class Compute, class Change>
Tensor& change_or_record(const char* op, Tensor& x, Compute compute, Change change) {
    if (autograd::records_change(op, x, false))
        autograd::replace(x, [&](const Tensor& before) { return to(compute(before), x.dtype()); });
    else
        change();
    return x;
}

template <class Compute, class Change>
Tensor& change_or_record(const char* op, Tensor& x, const Tensor& other, Compute compute,
                         Change change) {
    if (!autograd::records_change(op, x, other.defined() && other.requires_grad())) {
        change();
        return x;
    }
    check_device(op, {&x, &other});
    check_result(op, x, other.shape(), other.dtype());
    autograd::replace(x, [&](const Tensor& before) { return to(compute(before), x.dtype()); });
    return x;
}

void check_division(const char* op, const Tensor& x) {
    if (x.defined() && !is_floating(x.dtype()))
        throw DTypeError(str(
            op, ": the result of a division is floating and cannot be stored in a tensor of dtype ",
            x.dtype(), "; use div, or convert the tensor with to(f32) first"));
}

void check_subtraction(const char* op, const Tensor& x) {
    if (x.defined() && x.dtype() == boolean)
        throw DTypeError(str(op, ": not supported for booleans; use ne for exclusive or"));
}

}  // namespace

Tensor& Tensor::add_(const Tensor& other, Scalar alpha) {
    return change_or_record(
        "add_", *this, other,
        [&](const Tensor& x) { return axle::add(x, scaled(x, other, alpha)); },
        [&] {
            check_in_place("add_", *this);
            check_device("add_", {this, &other});
            const NoGrad no_grad;
            update("add_", *this, scaled(*this, other.detach(), alpha), formula::Add{});
        });
}

Tensor& Tensor::sub_(const Tensor& other, Scalar alpha) {
    check_subtraction("sub_", *this);
    return change_or_record(
        "sub_", *this, other,
        [&](const Tensor& x) { return axle::sub(x, scaled(x, other, alpha)); },
        [&] {
            check_in_place("sub_", *this);
            check_device("sub_", {this, &other});
            const NoGrad no_grad;
            update("sub_", *this, scaled(*this, other.detach(), alpha), formula::Sub{});
        });
}

Tensor& Tensor::mul_(const Tensor& other) {
    return change_or_record(
        "mul_", *this, other, [&](const Tensor& x) { return axle::mul(x, other); },
        [&] { update("mul_", *this, other, formula::Mul{}); });
}

Tensor& Tensor::div_(const Tensor& other) {
    check_division("div_", *this);
    return change_or_record(
        "div_", *this, other, [&](const Tensor& x) { return axle::div(x, other); },
        [&] { update("div_", *this, other, formula::Div{}); });
}

Tensor& Tensor::add_(Scalar value) {
    return change_or_record(
        "add_", *this, [&](const Tensor& x) { return axle::add(x, value); },
        [&] {
            update("add_", *this, value, formula::Add{}, formula::AddScalar{value.to_double()});
        });
}

Tensor& Tensor::sub_(Scalar value) {
    check_subtraction("sub_", *this);
    return change_or_record(
        "sub_", *this, [&](const Tensor& x) { return axle::sub(x, value); },
        [&] {
            update("sub_", *this, value, formula::Sub{}, formula::AddScalar{-value.to_double()});
        });
}

Tensor& Tensor::mul_(Scalar value) {
    return change_or_record(
        "mul_", *this, [&](const Tensor& x) { return axle::mul(x, value); },
        [&] {
            update("mul_", *this, value, formula::Mul{}, formula::MulScalar{value.to_double()});
        });
}

Tensor& Tensor::div_(Scalar value) {
    check_division("div_", *this);
    return change_or_record(
        "div_", *this, [&](const Tensor& x) { return axle::div(x, value); },
        [&] { update("div_", *this, boolean, formula::MulScalar{1 / value.to_double()}); });
}

Tensor& Tensor::clamp_(std::optional<double> low, std::optional<double> high) {
    const formula::Clamp f = clamp_formula("clamp_", low, high);
    return change_or_record(
        "clamp_", *this, [&](const Tensor& x) { return axle::clamp(x, low, high); },
        [&] { update("clamp_", *this, has_fraction(f) ? f32 : boolean, f); });
}

// --- compound assignment

namespace {

// Returns whether the operator must compute a new tensor with history instead of changing x. Throws
// UsageError if x is undefined, or if gradients are enabled and x is a leaf that requires a
// gradient.
bool is_recorded(const char* op, const Tensor& x, bool operand_requires_grad) {
    if (!x.defined()) throw UsageError(str(op, ": the tensor is undefined"));
    if (!grad_enabled() || !(x.requires_grad() || operand_requires_grad)) return false;
    if (x.requires_grad() && x.is_leaf())
        throw UsageError(
            str(op, ": a leaf that requires a gradient cannot be replaced by the result: x ",
                x.shape(), "; use a NoGrad scope to change it in place"));
    return true;
}

// If the op is recorded, sets x to compute(), converted to x's dtype. Otherwise calls change(),
// which changes x in place.
template <class Compute, class Update>
void assign(const char* op, Tensor& x, const Tensor& other, Compute compute, Update change) {
    check_device(op, {&x, &other});
    if (!is_recorded(op, x, other.requires_grad())) return change();
    check_result(op, x, other.shape(), other.dtype());
    x = to(compute(), x.dtype());
}

template <class Compute, class Update>
void assign(const char* op, Tensor& x, Scalar, Compute compute, Update change) {
    if (!is_recorded(op, x, false)) return change();
    x = to(compute(), x.dtype());
}

}  // namespace

Tensor& Tensor::operator+=(const Tensor& other) & {
    assign(
        "operator+=", *this, other, [&] { return axle::add(*this, other); }, [&] { add_(other); });
    return *this;
}
Tensor& Tensor::operator-=(const Tensor& other) & {
    check_subtraction("operator-=", *this);
    assign(
        "operator-=", *this, other, [&] { return axle::sub(*this, other); }, [&] { sub_(other); });
    return *this;
}
Tensor& Tensor::operator*=(const Tensor& other) & {
    assign(
        "operator*=", *this, other, [&] { return axle::mul(*this, other); }, [&] { mul_(other); });
    return *this;
}
Tensor& Tensor::operator/=(const Tensor& other) & {
    check_division("operator/=", *this);
    assign(
        "operator/=", *this, other, [&] { return axle::div(*this, other); }, [&] { div_(other); });
    return *this;
}
Tensor& Tensor::operator+=(Scalar value) & {
    assign(
        "operator+=", *this, value, [&] { return axle::add(*this, value); }, [&] { add_(value); });
    return *this;
}
Tensor& Tensor::operator-=(Scalar value) & {
    check_subtraction("operator-=", *this);
    assign(
        "operator-=", *this, value, [&] { return axle::sub(*this, value); }, [&] { sub_(value); });
    return *this;
}
Tensor& Tensor::operator*=(Scalar value) & {
    assign(
        "operator*=", *this, value, [&] { return axle::mul(*this, value); }, [&] { mul_(value); });
    return *this;
}
Tensor& Tensor::operator/=(Scalar value) & {
    check_division("operator/=", *this);
    assign(
        "operator/=", *this, value, [&] { return axle::div(*this, value); }, [&] { div_(value); });
    return *this;
}

}  // namespace axle
