// Private to core: operands and results of linear algebra. Ops widen their operands to f64, compute
// with the functions of this header, which are differentiable, and round the result.
#pragma once

#include <algorithm>
#include <vector>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/linalg.h"
#include "core/ops/linalg/host.h"
#include "core/profiler/profiler.h"
#include "kernels/thread_pool.h"

namespace axle::linalg {

// --- operands
// Returns x as f64 matrices. Throws UsageError, DTypeError or ShapeError.
inline Tensor matrices(const char* op, const Tensor& x, const char* name = "x") {
    check_device(op, {&x});
    check_floating(op, x, name);
    if (x.dim() < 2)
        throw ShapeError(
            str(op, ": ", name, " must have at least 2 dimensions: ", name, " is ", x.shape()));
    return to(x, f64);
}
// Returns x as square f64 matrices. Throws the errors of matrices(), and ShapeError unless they are
// square.
inline Tensor square_matrices(const char* op, const Tensor& x, const char* name = "x") {
    Tensor y = matrices(op, x, name);
    if (x.size(-1) != x.size(-2))
        throw ShapeError(str(op, ": ", name, " must be [..., n, n]: ", name, " is ", x.shape()));
    return y;
}
// Returns the dtype of the results for x: f32 for 16-bit operands under autocast, otherwise the
// dtype of x. x can be undefined, because the compiler chooses whether the checks of x run before
// this call.
inline DType result_dtype(const Tensor& x) {
    if (!x.defined()) return f32;
    return autocast_dtype() && (x.dtype() == f16 || x.dtype() == bf16) ? f32 : x.dtype();
}

// --- shapes
inline Shape batch_shape(const Tensor& x) {
    return Shape(std::span<const std::int64_t>(x.shape().begin(), x.shape().end() - 2));
}
inline Shape with_sizes(Shape shape, std::initializer_list<std::int64_t> sizes) {
    for (const std::int64_t n : sizes) shape.push_back(n);
    return shape;
}
inline Tensor transposed(const Tensor& x) { return transpose(x, -2, -1); }
inline Tensor identity_like(const Tensor& x, std::int64_t n) {
    return eye(n, {.dtype = x.dtype(), .device = x.device()});
}
// Returns a [..., m, n] and b [..., p, q] with their batch dimensions broadcast.
inline std::pair<Tensor, Tensor> broadcast_batches(const char* op, const Tensor& a,
                                                   const Tensor& b) {
    const Shape batch = broadcast_shapes(op, batch_shape(a), batch_shape(b));
    return {expand(a, with_sizes(batch, {a.size(-2), a.size(-1)})),
            expand(b, with_sizes(batch, {b.size(-2), b.size(-1)}))};
}

// --- computation on the host
// Returns a contiguous copy of x in host memory, without history. Not for the meta device.
inline Tensor host_copy(const Tensor& x) {
    const NoGrad no_grad;
    const Tensor there = contiguous(to(x.detach(), Device::cpu()));
    return x.device().is_cpu() ? clone(there) : there;
}
// Returns x, contiguous and in host memory, without history. The result can share memory with x.
// Not for the meta device.
inline Tensor host_matrices(const Tensor& x) {
    const NoGrad no_grad;
    return contiguous(to(x.detach(), Device::cpu()));
}
// Returns an f64 tensor for results: in host memory, or on the meta device if `like` is there.
inline Tensor host_result(const Tensor& like, const Shape& shape) {
    return Tensor::empty(
        shape, {.dtype = f64, .device = like.device().is_meta() ? Device::meta() : Device::cpu()});
}
// The first matrix of a batch with an error.
struct HostError {
    std::int64_t matrix = -1, number = 0;
};
// Calls f(i) for the index i of every matrix of x, in parallel. `work` is the number of operations
// per matrix. f returns 0 or an error number. The result contains the index of the first matrix
// with an error and the error number, or {-1, 0}.
template <class F>
HostError for_each_matrix(const Tensor& x, std::int64_t work, F&& f) {
    const std::int64_t count = numel(batch_shape(x));
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
    launch(Device::cpu(), [&](auto&) {
        kernels::parallel_ranges(
            count, std::max<std::int64_t>(1, 100'000 / std::max<std::int64_t>(work, 1)),
            [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t i = begin; i < end; ++i)
                    numbers[static_cast<std::size_t>(i)] = f(i);
            });
    });
    for (std::int64_t i = 0; i < count; ++i)
        if (numbers[static_cast<std::size_t>(i)] != 0)
            return {i, numbers[static_cast<std::size_t>(i)]};
    return {};
}
// Returns "inv: (Batch element 2): ", or "inv: " for one matrix.
inline std::string error_prefix(const char* op, const Tensor& x, const HostError& error) {
    return x.dim() > 2 ? str(op, ": (Batch element ", error.matrix, "): ") : str(op, ": ");
}

// --- differentiable functions of f64 matrices (solving.cpp, decompositions.cpp). op is the name of
// the op that calls them.
Tensor inverse_of(const char* op, const Tensor& x);
Tensor solution_of(const char* op, const Tensor& a, const Tensor& b);
Tensor triangular_solution_of(const char* op, const Tensor& a, const Tensor& b, bool upper,
                              bool unit);
Tensor determinant_of(const char* op, const Tensor& x);
Svd svd_of(const char* op, const Tensor& x, bool full);
Tensor singular_values_of(const char* op, const Tensor& x);
std::pair<Tensor, Tensor> eigenvectors_of(const char* op, const Tensor& x, bool upper);
Tensor eigenvalues_of(const char* op, const Tensor& x, bool upper);

}  // namespace axle::linalg
