// Comparisons with a tolerance, other elementwise functions of two tensors, signbit() and sinc(),
// as compositions of ops.
#include <cstdint>
#include <numbers>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/elementwise/promotion.h"
#include "core/ops/reductions/reduced.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// The operands of a function of two tensors, detached and in the dtype in which the function is
// computed: f32 for 16-bit dtypes. `dtype` is the dtype of the result: the promoted dtype of a and
// b, or f32 for integers.
struct Pair {
    Tensor a, b;
    DType dtype;

    Pair(const char* op, const Tensor& a_, const Tensor& b_) {
        check_device(op, {&a_, &b_});
        broadcast_shapes(op, a_.shape(), b_.shape());
        dtype = promote(a_, b_);
        if (!is_floating(dtype)) dtype = f32;
        const DType computed = is_half(dtype) ? f32 : dtype;
        a = to(a_.detach(), computed), b = to(b_.detach(), computed);
    }
};

// Returns |a - b| of i64 tensors in f64, rounded once. The difference of the upper halves and the
// difference of the lower halves are exact in f64; in i64, a - b can overflow.
Tensor distance(const Tensor& a, const Tensor& b) {
    constexpr std::int64_t kLower = 0xFFFFFFFF;
    const Tensor low_a = bitwise_and(a, kLower), low_b = bitwise_and(b, kLower);
    const Tensor upper = to(a - low_a, f64) - to(b - low_b, f64);
    return abs(upper + to(low_a - low_b, f64));
}

}  // namespace

Tensor isclose(const Tensor& a, const Tensor& b, const CloseOptions& options) {
    const profiler::OpScope scope("isclose");
    check_device("isclose", {&a, &b});
    broadcast_shapes("isclose", a.shape(), b.shape());
    if (!(options.rtol >= 0) || !(options.atol >= 0))
        throw ValueError(str("isclose: tolerances must be at least 0: rtol ", options.rtol,
                             ", atol ", options.atol));
    const AutocastGuard off(std::nullopt);
    const NoGrad no_grad;
    const DType common = promote(a, b);
    const DType computed = common == f32 ? f32 : f64;  // f64 is exact except for i64 above 2^53
    const Tensor x = to(a, computed), y = to(b, computed);
    Tensor close = is_floating(common) ? eq(x, y) : eq(a, b);
    if (options.rtol != 0 || options.atol != 0) {
        const Tensor error = common == i64 ? distance(to(a, i64), to(b, i64)) : abs(x - y);
        const Tensor allowed = abs(y) * options.rtol + options.atol;
        close = logical_or(close, logical_and(isfinite(error), le(error, allowed)));
    }
    if (options.equal_nan) close = logical_or(close, logical_and(isnan(x), isnan(y)));
    return close;
}

bool allclose(const Tensor& a, const Tensor& b, const CloseOptions& options) {
    return all(isclose(a, b, options)).item<bool>();
}

bool equal(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("equal");
    check_device("equal", {&a, &b});
    return a.shape() == b.shape() && all(eq(a.detach(), b.detach())).item<bool>();
}

Tensor fmax(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("fmax");
    check_device("fmax", {&a, &b});
    broadcast_shapes("fmax", a.shape(), b.shape());
    return where(logical_or(ge(a, b), isnan(b)), a, b);
}
Tensor fmin(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("fmin");
    check_device("fmin", {&a, &b});
    broadcast_shapes("fmin", a.shape(), b.shape());
    return where(logical_or(le(a, b), isnan(b)), a, b);
}

// The reciprocal distinguishes -0 from 0.
Tensor signbit(const Tensor& x) {
    const profiler::OpScope scope("signbit");
    check_device("signbit", {&x});
    const AutocastGuard off(std::nullopt);
    const Tensor at = x.detach(), negative = lt(at, 0);
    return is_floating(x.dtype()) ? logical_or(negative, lt(reciprocal(at), 0)) : negative;
}

Tensor copysign(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("copysign");
    const AutocastGuard off(std::nullopt);
    const Pair pair("copysign", a, b);
    const Tensor size = abs(pair.a), y = to(where(signbit(b), neg(size), size), pair.dtype);
    return record("copysign", y, {a, b},
                  [a = saved(a), y = saved(y)](const Grads& dy, Needs) -> Grads {
                      const Tensor slope = sign(a.get().detach()) * sign(y.get().detach());
                      return {dy[0] * slope, zeros_like(dy[0])};
                  });
}

Tensor hypot(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("hypot");
    const AutocastGuard off(std::nullopt);
    const Pair pair("hypot", a, b);
    Tensor y;
    {
        const NoGrad no_grad;
        const Tensor x = abs(pair.a), z = abs(pair.b), largest = maximum(x, z);
        const Tensor length = largest * sqrt(square(minimum(x, z) / largest) + 1);
        y = to(where(logical_or(eq(largest, 0), isinf(largest)), largest, length), pair.dtype);
    }
    return record("hypot", y, {a, b},
                  [a = saved(a), b = saved(b), y = saved(y)](const Grads& dy, Needs) -> Grads {
                      const Tensor scaled = dy[0] / y.get();
                      return {scaled * a.get(), scaled * b.get()};
                  });
}

Tensor xlogy(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("xlogy");
    const AutocastGuard off(std::nullopt);
    const Pair pair("xlogy", a, b);
    Tensor y;
    {
        const NoGrad no_grad;
        const Tensor is_zero = logical_and(eq(pair.a, 0), logical_not(isnan(pair.b)));
        y = to(masked_fill(pair.a * log(pair.b), is_zero, 0), pair.dtype);
    }
    return record("xlogy", y, {a, b},
                  [a = saved(a), b = saved(b)](const Grads& dy, Needs) -> Grads {
                      const Tensor x = a, z = b;
                      const Tensor is_zero = logical_and(eq(x, 0), le(z, 0));
                      return {masked_fill(dy[0] * log(z), is_zero, 0), dy[0] * x / z};
                  });
}

// The gradient at 0 is 0.
Tensor sinc(const Tensor& x) {
    const profiler::OpScope scope("sinc");
    check_device("sinc", {&x});
    const Tensor at = as_floating(x), is_zero = eq(at.detach(), 0);
    const Tensor angle = masked_fill(widened(at), is_zero, 1) * std::numbers::pi;
    return to(masked_fill(sin(angle) / angle, is_zero, 1), at.dtype());
}

// An infinite maximum is not subtracted, because inf - inf is NaN.
Tensor logaddexp(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("logaddexp");
    const AutocastGuard off(std::nullopt);
    const Pair pair("logaddexp", a, b);
    Tensor y;
    {
        const NoGrad no_grad;
        const Tensor largest = maximum(pair.a, pair.b);
        const Tensor shift = masked_fill(largest, isinf(largest), 0);
        y = to(log(exp(pair.a - shift) + exp(pair.b - shift)) + shift, pair.dtype);
    }
    return record("logaddexp", y, {a, b},
                  [a = saved(a), b = saved(b)](const Grads& dy, Needs) -> Grads {
                      const Tensor share = sigmoid(a.get() - b.get());
                      return {dy[0] * share, dy[0] * (1 - share)};
                  });
}
Tensor logaddexp2(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("logaddexp2");
    const AutocastGuard off(std::nullopt);
    const Pair pair("logaddexp2", a, b);  // checks the operands
    const auto scaled = [](const Tensor& x) { return widened(as_floating(x)) * std::numbers::ln2; };
    return to(logaddexp(scaled(a), scaled(b)) / std::numbers::ln2, pair.dtype);
}

}  // namespace axle
