// Random tensors, computed from the numbers of rand, randn, randint and normal_.
#include <cstdint>
#include <limits>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/creation/random_integers.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/sort.h"

namespace axle {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

TensorOptions options_of(const Tensor& x) { return {.dtype = x.dtype(), .device = x.device()}; }

// Throws ValueError on a CPU if an element is NaN or not in [low, high].
void check_elements(const char* op, const char* name, const Tensor& x, double low, double high) {
    if (!x.device().is_cpu()) return;
    const Tensor values = contiguous(to(x.detach(), f64));
    const double* at = values.data<double>();
    for (std::int64_t i = 0; i < values.numel(); ++i)
        if (!(at[i] >= low && at[i] <= high))
            throw ValueError(str(op, ": ", name, " must be ",
                                 high < kUnlimited ? "in [0, 1]" : "at least 0", ": ", at[i],
                                 " at element ", i, " of ", x.shape()));
}

// Returns mean + std * (normally distributed numbers of this shape).
template <class Mean, class Std>
Tensor scaled_normal(const Shape& shape, DType dtype, Device device, const Mean& mean,
                     const Std& std) {
    const NoGrad no_grad;
    return to(add(mul(randn(shape, {.dtype = dtype, .device = device}), std), mean), dtype);
}

// Returns random keys in [0, 2^63). Equal keys are so improbable that their order does not matter.
Tensor random_keys(std::int64_t n, Device device) {
    const TensorOptions options{.dtype = i64, .device = device};
    const Tensor high = randint(0, std::int64_t{1} << 32, n, options);
    const Tensor low = randint(0, std::int64_t{1} << 31, n, options);
    return add(mul(high, std::int64_t{1} << 31), low);
}

}  // namespace

Tensor rand_like(const Tensor& x) {
    const profiler::OpScope scope("rand_like");
    check_device("rand_like", {&x});
    check_floating("rand_like", x);
    return rand(x.shape(), options_of(x));
}

Tensor randn_like(const Tensor& x) {
    const profiler::OpScope scope("randn_like");
    check_device("randn_like", {&x});
    check_floating("randn_like", x);
    return randn(x.shape(), options_of(x));
}

Tensor randint_like(const Tensor& x, std::int64_t low, std::int64_t high) {
    const profiler::OpScope scope("randint_like");
    check_device("randint_like", {&x});
    return random_integers("randint_like", low, high, x.shape(), options_of(x));
}
Tensor randint_like(const Tensor& x, std::int64_t high) { return randint_like(x, 0, high); }

Tensor randperm(std::int64_t n, TensorOptions options) {
    const profiler::OpScope scope("randperm");
    if (n < 0) throw ShapeError(str("randperm: n must not be negative: ", n));
    const bool requires_grad = std::exchange(options.requires_grad, false);
    Tensor y = Tensor::empty(n, options);
    check_compute("randperm", y, "the result");
    const Device device = y.device();
    for (const std::int64_t number : {n - 2, n - 1})
        if (n > 1 && full({}, number, {options.dtype}).item() != static_cast<double>(number))
            throw ValueError(
                str("randperm: ", options.dtype, " cannot represent all numbers below ", n));
    const bool fits = device.is_meta() || !device.is_cuda() || n <= kernels::kMaxSortedElements;
    const Tensor order = argsort(random_keys(n, fits ? device : Device::cpu()));
    if (!device.is_meta()) y.copy_(to(order, device));
    if (requires_grad) y.set_requires_grad();
    return y;
}

Tensor bernoulli(const Tensor& p) {
    const profiler::OpScope scope("bernoulli");
    check_device("bernoulli", {&p});
    check_floating("bernoulli", p, "p");
    check_elements("bernoulli", "p", p, 0, 1);
    const NoGrad no_grad;
    return to(lt(rand(p.shape(), {.dtype = f32, .device = p.device()}), p), p.dtype());
}

Tensor bernoulli(double p, const Shape& shape, TensorOptions options) {
    const profiler::OpScope scope("bernoulli");
    if (!(p >= 0 && p <= 1)) throw ValueError(str("bernoulli: p must be in [0, 1]: ", p));
    const bool requires_grad = std::exchange(options.requires_grad, false);
    Tensor y = Tensor::empty(shape, options);
    check_compute("bernoulli", y, "the result");
    y.copy_(lt(rand(shape, {.dtype = f32, .device = y.device()}), p));
    if (requires_grad) y.set_requires_grad();
    return y;
}

Tensor normal(const Tensor& mean, const Tensor& std) {
    const profiler::OpScope scope("normal");
    const Device device = check_device("normal", {&mean, &std});
    check_floating("normal", mean, "mean");
    check_floating("normal", std, "std");
    check_elements("normal", "std", std, 0, kUnlimited);
    return scaled_normal(broadcast_shapes("normal", mean.shape(), std.shape()), promote(mean, std),
                         device, mean, std);
}

Tensor normal(const Tensor& mean, double std) {
    const profiler::OpScope scope("normal");
    const Device device = check_device("normal", {&mean});
    check_floating("normal", mean, "mean");
    if (!(std >= 0)) throw ValueError(str("normal: std must be at least 0: ", std));
    return scaled_normal(mean.shape(), mean.dtype(), device, mean, std);
}

Tensor normal(double mean, const Tensor& std) {
    const profiler::OpScope scope("normal");
    const Device device = check_device("normal", {&std});
    check_floating("normal", std, "std");
    check_elements("normal", "std", std, 0, kUnlimited);
    return scaled_normal(std.shape(), std.dtype(), device, mean, std);
}

Tensor normal(double mean, double std, const Shape& shape, TensorOptions options) {
    const profiler::OpScope scope("normal");
    if (!(std >= 0)) throw ValueError(str("normal: std must be at least 0: ", std));
    const bool requires_grad = std::exchange(options.requires_grad, false);
    Tensor y = Tensor::empty(shape, options);
    check_floating("normal", y, "the result");
    y.normal_(mean, std);
    if (requires_grad) y.set_requires_grad();
    return y;
}

}  // namespace axle
