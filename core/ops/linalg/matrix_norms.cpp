// Norms of matrices, and condition numbers.
#include <cmath>

#include "core/ops/linalg/matrices.h"

namespace axle::linalg {
namespace {

// Returns the two dimensions of the matrices. Throws DTypeError unless x is floating, ShapeError if
// x has fewer than two dimensions, IndexError if x does not have one of `dims`, and ValueError
// unless `dims` are two different dimensions.
std::pair<int, int> norm_dims(const char* op, const Tensor& x, const Dims& dims) {
    check_device(op, {&x});
    check_floating(op, x);
    if (x.dim() < 2)
        throw ShapeError(str(op, ": x must have at least 2 dimensions: x is ", x.shape()));
    if (dims.size() != 2) throw ValueError(str(op, ": dims must be two dimensions: ", dims));
    const int a = wrap_dim(op, dims[0], x.dim()), b = wrap_dim(op, dims[1], x.dim());
    if (a == b) throw ValueError(str(op, ": the dimensions must differ: ", dims));
    return {a, b};
}

// Returns the singular values of the matrices in dimensions a and b, as the last dimension.
Tensor values_over(const char* op, const Tensor& x, int a, int b) {
    return singular_values_of(op, movedim(to(x, f64), {a, b}, {-2, -1}));
}

Tensor with_kept(const Tensor& y, int a, int b, bool keepdim) {
    return keepdim ? unsqueeze(unsqueeze(y, std::min(a, b)), std::max(a, b)) : y;
}

}  // namespace

Tensor matrix_norm(const Tensor& x, MatrixNorm ord, const Dims& dims, bool keepdim) {
    const profiler::OpScope scope("matrix_norm");
    const auto [a, b] = norm_dims("matrix_norm", x, dims);
    if (ord == MatrixNorm::fro) return axle::vector_norm(x, 2, {a, b}, keepdim);
    const Tensor y = sum(values_over("matrix_norm", x, a, b), -1);
    return to(with_kept(y, a, b, keepdim), result_dtype(x));
}

namespace {

// Returns matrix_norm(x, ord, dims, keepdim). Errors name the op `op`, which calls it.
Tensor matrix_norm_of(const char* op, const Tensor& x, double ord, const Dims& dims, bool keepdim) {
    const profiler::OpScope scope("matrix_norm");
    check_device("matrix_norm", {&x});
    const auto [a, b] = norm_dims(op, x, dims);
    const double size = std::abs(ord);
    if (size != 1 && size != 2 && !std::isinf(size))
        throw ValueError(str(op, ": ord must be 1, -1, 2, -2, inf or -inf for matrices: ", ord));
    Tensor values;  // the last dimension is reduced
    if (size == 2) {
        values = values_over(op, x, a, b);
    } else {
        // Sums over one dimension and moves the other dimension to the end.
        const int summed = size == 1 ? a : b, other = size == 1 ? b : a;
        values = movedim(sum(abs(to(x, f64)), summed, true), {summed, other}, {-2, -1});
        values = squeeze(values, -2);
    }
    // The largest of no numbers is 0.
    const bool is_empty = values.size(-1) == 0 && ord > 0;
    const Tensor y = is_empty ? sum(values, -1) : ord > 0 ? amax(values, -1) : amin(values, -1);
    return to(with_kept(y, a, b, keepdim), result_dtype(x));
}

}  // namespace

Tensor matrix_norm(const Tensor& x, double ord, const Dims& dims, bool keepdim) {
    return matrix_norm_of("matrix_norm", x, ord, dims, keepdim);
}

Tensor norm(const Tensor& x, std::optional<double> ord, const Dims& dims, bool keepdim) {
    const profiler::OpScope scope("norm");
    if (!ord) return axle::norm(x, 2, dims, keepdim);
    check_device("norm", {&x});
    const int count = dims.empty() ? x.dim() : dims.size();
    if (count == 1) return axle::norm(x, *ord, dims, keepdim);
    if (count != 2)
        throw ShapeError(
            str("norm: an order needs one or two dimensions: x is ", x.shape(), ", dims ", dims));
    return matrix_norm_of("norm", x, *ord, dims.empty() ? Dims{0, 1} : dims, keepdim);
}

Tensor cond(const Tensor& x, double p) {
    const profiler::OpScope scope("cond");
    if (std::abs(p) == 2) {
        const Tensor s = singular_values_of("cond", matrices("cond", x));
        if (s.size(-1) == 0) return to(sum(s, -1), result_dtype(x));
        const Tensor largest = select(s, -1, 0), smallest = select(s, -1, -1);
        return to(p > 0 ? div(largest, smallest) : div(smallest, largest), result_dtype(x));
    }
    const Tensor a = square_matrices("cond", x);
    if (a.size(-1) == 0) return to(sum(a, {-2, -1}), result_dtype(x));
    return to(mul(matrix_norm(a, p), matrix_norm(inverse_of("cond", a), p)), result_dtype(x));
}
Tensor cond(const Tensor& x, MatrixNorm p) {
    const profiler::OpScope scope("cond");
    const Tensor a = square_matrices("cond", x);
    return to(mul(matrix_norm(a, p), matrix_norm(inverse_of("cond", a), p)), result_dtype(x));
}

}  // namespace axle::linalg
