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

Tensor arange(Scalar start, Scalar end, Scalar step, TensorOptions options) {
    const profiler::OpScope scope("arange");
    if (step.value == 0) throw ValueError("arange: the step must not be 0");
    const double count = std::ceil((end.value - start.value) / step.value);
    if (!(count >= 0) || count > 0x1p53)
        throw ValueError(str("arange: invalid range: ", start.value, " to ", end.value,
                             " with step ", step.value));
    const bool requires_grad = std::exchange(options.requires_grad, false);
    Tensor y = Tensor::empty({static_cast<std::int64_t>(count)}, options);
    check_compute("arange", y);
    launch(y.device(), [&](auto& on) { kernels::arange(on, start.value, step.value, y.view()); });
    if (requires_grad) y.set_requires_grad();
    return y;
}

Tensor arange(Scalar end, TensorOptions options) { return arange(0, end, 1, options); }

namespace {

template <class T>
Tensor from_values(const std::vector<T>& values, const Shape& shape, TensorOptions options) {
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

Tensor tensor(const std::vector<double>& values, const Shape& shape, TensorOptions options) {
    return from_values(values, shape, options);
}
Tensor tensor(std::initializer_list<double> values, const Shape& shape, TensorOptions options) {
    return tensor(std::vector<double>(values), shape, options);
}
Tensor tensor(const std::vector<std::int64_t>& values, const Shape& shape) {
    return from_values(values, shape, {.dtype = i64});
}

}  // namespace axle
