#include <cmath>
#include <cstdint>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/copy.h"
#include "kernels/walk.h"

namespace axle {
namespace {

// Writes start, start + step, ... to the first `head` elements of y, and ..., end - step, end to
// the other elements, so that both ends are exact.
void fill_from_both_ends(Tensor& y, double start, double end, double step, std::int64_t head) {
    Tensor first = narrow(y, 0, 0, head), last = narrow(y, 0, head, y.numel() - head);
    launch(y.device(), [&](auto& on) {
        kernels::arange(on, start, step, first.view());
        View reversed = last.view();
        reversed.data = kernels::at(reversed.data, reversed.dtype,
                                    (reversed.shape[0] - 1) * reversed.stride[0]);
        reversed.stride[0] = -reversed.stride[0];
        kernels::arange(on, end, -step, reversed);
    });
}

// Truncates the bounds to integers unless dtype is floating.
void truncate_bounds(double& start, double& end, DType dtype) {
    if (is_floating(dtype)) return;
    start = std::trunc(start);
    end = std::trunc(end);
}

Tensor evenly_spaced(const char* op, double start, double end, std::int64_t steps,
                     TensorOptions options) {
    if (steps < 0) throw ShapeError(str(op, ": the number of steps must not be negative: ", steps));
    Tensor y = Tensor::empty(steps, options);
    check_compute(op, y, "the result");
    const NoGrad no_grad;
    if (steps == 1) y.fill_(start);
    if (steps > 1)
        fill_from_both_ends(y, start, end, (end - start) / static_cast<double>(steps - 1),
                            steps / 2);
    return y;
}

}  // namespace

Tensor linspace(double start, double end, std::int64_t steps, TensorOptions options) {
    const profiler::OpScope scope("linspace");
    const bool requires_grad = std::exchange(options.requires_grad, false);
    truncate_bounds(start, end, options.dtype);
    Tensor y = evenly_spaced("linspace", start, end, steps, options);
    if (requires_grad) y.set_requires_grad();
    return y;
}

Tensor logspace(double start, double end, std::int64_t steps, double base, TensorOptions options) {
    const profiler::OpScope scope("logspace");
    TensorOptions wide = options;
    wide.dtype = f64;
    wide.requires_grad = wide.pinned = false;
    truncate_bounds(start, end, options.dtype);
    const Tensor exponents = evenly_spaced("logspace", start, end, steps, wide);
    const bool requires_grad = std::exchange(options.requires_grad, false);
    Tensor y = Tensor::empty(steps, options);
    check_compute("logspace", y, "the result");
    y.copy_(pow(base, exponents));
    if (requires_grad) y.set_requires_grad();
    return y;
}

Tensor eye(std::int64_t n, std::int64_t m, TensorOptions options) {
    const profiler::OpScope scope("eye");
    if (n < 0 || m < 0) throw ShapeError(str("eye: sizes must not be negative: n ", n, ", m ", m));
    const bool requires_grad = std::exchange(options.requires_grad, false);
    Tensor y = zeros({n, m}, options);
    diagonal(y).fill_(1);
    if (requires_grad) y.set_requires_grad();
    return y;
}
Tensor eye(std::int64_t n, TensorOptions options) { return eye(n, n, options); }

}  // namespace axle
