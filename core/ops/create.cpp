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

Tensor full(const Shape& shape, Scalar value, TensorOptions options) {
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

namespace {

// Returns the dtype that is inferred for numbers: f32, i64 or bool.
DType inferred_dtype(std::initializer_list<Scalar> values) {
    bool all_bool = true;
    for (const Scalar& v : values) {
        if (!v.integral) return f32;
        all_bool &= v.is_bool;
    }
    return values.size() == 0 ? f32 : all_bool ? boolean : i64;
}

}  // namespace

Tensor arange(Scalar start, Scalar end, Scalar step, InferredOptions inferred) {
    const profiler::OpScope scope("arange");
    TensorOptions options =
        inferred.with(start.integral && end.integral && step.integral ? i64 : f32);
    if (step.value == 0) throw ValueError("arange: the step must not be 0");
    const double count = std::ceil((end.value - start.value) / step.value);
    if (!(count >= 0) || count > 0x1p53)
        throw ValueError(str("arange: the step must lead to the end in at most 2^53 elements: ",
                             start.value, " to ", end.value, " with step ", step.value));
    const bool requires_grad = std::exchange(options.requires_grad, false);
    Tensor y = Tensor::empty({static_cast<std::int64_t>(count)}, options);
    check_compute("arange", y);
    launch(y.device(), [&](auto& on) { kernels::arange(on, start.value, step.value, y.view()); });
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
        throw ShapeError(str("tensor: got ", values.size(), " values for shape ", shape));
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
Tensor tensor(std::initializer_list<Scalar> values, const Shape& shape, InferredOptions options) {
    std::vector<double> doubles;
    doubles.reserve(values.size());
    for (const Scalar& v : values) doubles.push_back(v.value);
    options.dtype = options.dtype.value_or(inferred_dtype(values));
    return tensor(std::span<const double>(doubles), shape, options);
}
Tensor tensor(Scalar value, InferredOptions options) { return tensor({value}, Shape(), options); }

}  // namespace axle
