#include <limits>

#include "core/ops/pointwise.h"

namespace axle {
namespace {

namespace formula = kernels::formula;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class F>
Tensor bitwise(const char* op, F f, const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope(op);
    check_device(op, {&a, &b});
    for (const Tensor* x : {&a, &b})
        if (!is_integral(x->dtype()))
            throw DTypeError(str(op, ": operands must be integers or booleans: a is ", a.dtype(),
                                 ", b is ", b.dtype()));
    const DType common = promote(a, b);
    return binary_forward(op, f, a, b, common, common);
}

// Returns which elements are not zero, as booleans.
Tensor truth(const Tensor& x) { return x.dtype() == boolean ? x : ne(x, 0); }

template <class F>
Tensor logical(const char* op, F f, const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope(op);
    check_device(op, {&a, &b});
    return binary_forward(op, f, truth(a), truth(b), boolean, boolean);
}

double largest(DType dtype) {
    switch (dtype) {
        case DType::f64:
            return std::numeric_limits<double>::max();
        case DType::f16:
            return 65504;
        case DType::bf16:
            return 0x1.fep127;
        default:
            return std::numeric_limits<float>::max();
    }
}

}  // namespace

Tensor logical_not(const Tensor& x) {
    const profiler::OpScope scope("logical_not");
    check_device("logical_not", {&x});
    return eq(x, 0);
}
Tensor logical_and(const Tensor& a, const Tensor& b) {
    return logical("logical_and", formula::BitwiseAnd{}, a, b);
}
Tensor logical_or(const Tensor& a, const Tensor& b) {
    return logical("logical_or", formula::BitwiseOr{}, a, b);
}
Tensor logical_xor(const Tensor& a, const Tensor& b) {
    return logical("logical_xor", formula::BitwiseXor{}, a, b);
}

Tensor isnan(const Tensor& x) {
    const profiler::OpScope scope("isnan");
    check_device("isnan", {&x});
    return ne(x, x);
}
Tensor isinf(const Tensor& x) {
    const profiler::OpScope scope("isinf");
    check_device("isinf", {&x});
    const NoGrad no_grad;
    return is_floating(x.dtype()) ? eq(abs(x), kInfinity) : ne(x, x);
}
Tensor isfinite(const Tensor& x) {
    const profiler::OpScope scope("isfinite");
    check_device("isfinite", {&x});
    const NoGrad no_grad;
    return is_floating(x.dtype()) ? lt(abs(x), kInfinity) : eq(x, x);
}

Tensor bitwise_not(const Tensor& x) {
    check_device("bitwise_not", {&x});
    if (x.dtype() == boolean) return logical_not(x);
    return bitwise(
        "bitwise_not", formula::BitwiseXor{}, x,
        full({}, x.dtype() == u8 ? 255 : -1, {.dtype = x.dtype(), .device = x.device()}));
}
Tensor bitwise_and(const Tensor& a, const Tensor& b) {
    return bitwise("bitwise_and", formula::BitwiseAnd{}, a, b);
}
Tensor bitwise_or(const Tensor& a, const Tensor& b) {
    return bitwise("bitwise_or", formula::BitwiseOr{}, a, b);
}
Tensor bitwise_xor(const Tensor& a, const Tensor& b) {
    return bitwise("bitwise_xor", formula::BitwiseXor{}, a, b);
}
Tensor bitwise_and(const Tensor& a, Scalar b) {
    check_device("bitwise_and", {&a});
    return bitwise_and(a, scalar_operand(b, a));
}
Tensor bitwise_or(const Tensor& a, Scalar b) {
    check_device("bitwise_or", {&a});
    return bitwise_or(a, scalar_operand(b, a));
}
Tensor bitwise_xor(const Tensor& a, Scalar b) {
    check_device("bitwise_xor", {&a});
    return bitwise_xor(a, scalar_operand(b, a));
}

Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
    const profiler::OpScope scope("nan_to_num");
    check_device("nan_to_num", {&x});
    if (!is_floating(x.dtype())) return clone(x);
    const double high = posinf.value_or(largest(x.dtype())),
                 low = neginf.value_or(-largest(x.dtype()));
    Tensor y = masked_fill(x, isnan(x), nan);
    y = masked_fill(y, eq(x, kInfinity), high);
    return masked_fill(y, eq(x, -kInfinity), low);
}

}  // namespace axle
