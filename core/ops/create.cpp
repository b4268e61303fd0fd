#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/copy.h"

namespace axle {

Tensor empty(const Shape& shape, TensorOptions options) { return Tensor::empty(shape, options); }

Tensor empty_like(const Tensor& x) {
    return Tensor::empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
}

namespace {

// Returns the dtype that is inferred for numbers: f32 if one of them is floating or there are none,
// bool if all are booleans, otherwise i64.
DType inferred_dtype(std::span<const Scalar> values) {
    bool all_bool = true;
    for (const Scalar& v : values) {
        if (!v.is_integral()) return f32;
        all_bool &= v.is_bool();
    }
    return values.empty() ? f32 : all_bool ? boolean : i64;
}

}  // namespace

Tensor full(const Shape& shape, Scalar value, InferredOptions inferred) {
    TensorOptions options = inferred.with(inferred_dtype({&value, 1}));
    const bool requires_grad = std::exchange(options.requires_grad, false);
    Tensor y = Tensor::empty(shape, options);
    y.fill_(value);
    if (requires_grad) y.set_requires_grad();
    return y;
}

Tensor zeros(const Shape& shape, TensorOptions options) { return full(shape, 0, options); }
Tensor ones(const Shape& shape, TensorOptions options) { return full(shape, 1, options); }

Tensor full_like(const Tensor& x, Scalar value) {
    Tensor y = empty_like(x);
    y.fill_(value);
    return y;
}
Tensor zeros_like(const Tensor& x) { return full_like(x, 0); }
Tensor ones_like(const Tensor& x) { return full_like(x, 1); }

Tensor arange(Scalar start, Scalar end, Scalar step, InferredOptions inferred) {
    const profiler::OpScope scope("arange");
    const bool integral = start.is_integral() && end.is_integral() && step.is_integral();
    TensorOptions options = inferred.with(integral ? i64 : f32);
    double first = start.to_double(), increment = step.to_double();
    if (increment == 0) throw ValueError("arange: the step must not be 0");
    const double steps = (end.to_double() - first) / increment;
    if (!(steps >= 0) || steps > 0x1p53)
        throw ValueError(str("arange: the step must lead to the end in at most 2^53 elements: ",
                             first, " to ", end.to_double(), " with step ", increment));
    auto count = static_cast<std::int64_t>(std::ceil(steps));
    bool exact = true;  // whether doubles, which the kernel uses, represent the integers
    if (integral) {
        const auto from = static_cast<std::uint64_t>(start.to_int64());
        const auto to = static_cast<std::uint64_t>(end.to_int64());
        const std::uint64_t size = increment > 0 ? to - from : from - to;
        const auto width = static_cast<std::uint64_t>(step.to_int64());
        const std::uint64_t by = increment > 0 ? width : 0 - width;
        count = static_cast<std::int64_t>(size / by + (size % by != 0));
        exact = start.fits_double() && end.fits_double() && size <= std::uint64_t{1} << 53;
    }
    if (!integral && !is_floating(options.dtype))
        first = std::trunc(first), increment = std::trunc(increment);
    const double last = first + static_cast<double>(count) * increment;
    if (!integral && !is_floating(options.dtype) &&
        !(std::abs(first) < 0x1p63 && std::abs(last) < 0x1p63))
        throw ValueError(str("arange: the integers must fit into int64: ", first, " to ", last));
    const bool requires_grad = std::exchange(options.requires_grad, false);
    Tensor y = Tensor::empty({count}, options);
    check_compute("arange", y, "the result");
    launch(y.device(), [&](auto& on) {
        kernels::arange(on, exact ? first : 0, exact ? increment : 1, y.view());
    });
    if (!exact) y.mul_(step).add_(start);
    if (requires_grad) y.set_requires_grad();
    return y;
}

Tensor arange(Scalar start, Scalar end, InferredOptions options) {
    return arange(start, end, 1, options);
}
Tensor arange(Scalar end, InferredOptions options) { return arange(0, end, 1, options); }

namespace {

template <class T>
Tensor from_values(std::span<const T> values, const Shape& shape, TensorOptions options) {
    if (static_cast<std::int64_t>(values.size()) != numel(shape))
        throw ShapeError(
            str("tensor: shape ", shape, " needs ", numel(shape), " values: got ", values.size()));
    const bool requires_grad = std::exchange(options.requires_grad, false);
    const Tensor source = Tensor::from_blob(const_cast<T*>(values.data()), shape, dtype_of<T>);
    Tensor y = Tensor::empty(shape, options);
    y.copy_(source);
    if (requires_grad) y.set_requires_grad();
    return y;
}

}  // namespace

Tensor tensor(std::span<const double> values, const Shape& shape, InferredOptions options) {
    return from_values(values, shape, options.with(f32));
}
Tensor tensor(std::span<const float> values, const Shape& shape, InferredOptions options) {
    return from_values(values, shape, options.with(f32));
}
Tensor tensor(std::span<const std::int64_t> values, const Shape& shape, InferredOptions options) {
    return from_values(values, shape, options.with(i64));
}
Tensor tensor(std::span<const int> values, const Shape& shape, InferredOptions options) {
    static_assert(sizeof(int) == sizeof(std::int32_t));
    return from_values(values, shape, options.with(i64));
}
Tensor tensor(std::span<const bool> values, const Shape& shape, InferredOptions options) {
    return from_values(values, shape, options.with(boolean));
}
Tensor tensor(std::span<const Scalar> values, const Shape& shape, InferredOptions options) {
    options.dtype = options.dtype.value_or(inferred_dtype(values));
    const bool all_integral =
        std::all_of(values.begin(), values.end(), [](const Scalar& v) { return v.is_integral(); });
    if (!all_integral) {
        std::vector<double> numbers;
        numbers.reserve(values.size());
        for (const Scalar& v : values) numbers.push_back(v.to_double());
        return tensor(std::span<const double>(numbers), shape, options);
    }
    std::vector<std::int64_t> integers;
    integers.reserve(values.size());
    for (const Scalar& v : values) integers.push_back(v.to_int64());
    return tensor(std::span<const std::int64_t>(integers), shape, options);
}

Tensor tensor(std::initializer_list<Scalar> values, InferredOptions options) {
    return tensor(values, static_cast<std::int64_t>(values.size()), options);
}
Tensor tensor(Scalar value, InferredOptions options) {
    return tensor(std::span<const Scalar>(&value, 1), Shape(), options);
}

}  // namespace axle
