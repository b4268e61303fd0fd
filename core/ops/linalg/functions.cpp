// Exponentials and powers of matrices, tensor inverses and equations, vecdot() and vander().
#include "core/ops/linalg/matrices.h"

namespace axle {
namespace linalg {
namespace {

// Returns e^x. The gradient is a block of the exponential of a larger matrix (Al-Mohy and Higham,
// 2009, "Computing the Frechet Derivative of the Matrix Exponential"). Throws LinAlgError if an
// element is not finite.
Tensor exponential_of(const char* op, const Tensor& x) {
    Tensor y;
    const std::int64_t n = x.size(-1);
    if (x.device().is_meta()) {
        y = empty_like(x);
    } else {
        Tensor result = host_copy(x);
        double* const data = result.data<double>();
        if (n > 0) {
            const HostError error = for_each_matrix(x, 20 * n * n * n, [&](std::int64_t i) {
                return host::exponential(n, data + i * n * n) ? 0 : 1;
            });
            if (error.matrix >= 0)
                throw LinAlgError(str(error_prefix(op, x, error),
                                      "an element is not finite: the shape is ", x.shape()));
        }
        y = to(result, x.device());
    }
    return record(op, y, {x}, [op, x = saved(x), n](const Grads& dy, Needs) -> Grads {
        const Tensor a = transposed(x);
        const Tensor upper = cat({a, dy[0]}, -1), lower = cat({zeros_like(a), a}, -1);
        const Tensor e = exponential_of(op, cat({upper, lower}, -2));
        return {narrow(narrow(e, -2, 0, n), -1, n, n)};
    });
}

std::int64_t product_of_sizes(const Shape& shape, int begin, int end) {
    std::int64_t product = 1;
    for (int i = begin; i < end; ++i) product *= shape[i];
    return product;
}

}  // namespace

Tensor matrix_exp(const Tensor& x) {
    const profiler::OpScope scope("matrix_exp");
    return to(exponential_of("matrix_exp", square_matrices("matrix_exp", x)), result_dtype(x));
}

Tensor tensorinv(const Tensor& x, std::int64_t ind) {
    const profiler::OpScope scope("tensorinv");
    check_device("tensorinv", {&x});
    check_floating("tensorinv", x);
    if (ind <= 0) throw ValueError(str("tensorinv: ind must be positive: ", ind));
    const int first = static_cast<int>(std::min<std::int64_t>(ind, x.dim()));
    const std::int64_t rows = product_of_sizes(x.shape(), 0, first);
    const std::int64_t columns = product_of_sizes(x.shape(), first, x.dim());
    if (rows != columns)
        throw ShapeError(str("tensorinv: the product of the first ", ind,
                             " sizes must equal the product of the other sizes: x is ", x.shape()));
    Shape shape;
    for (int i = first; i < x.dim(); ++i) shape.push_back(x.shape()[i]);
    for (int i = 0; i < first; ++i) shape.push_back(x.shape()[i]);
    const Tensor matrix = reshape(to(x, f64), {rows, columns});
    return to(reshape(inverse_of("tensorinv", matrix), shape), result_dtype(x));
}

Tensor tensorsolve(const Tensor& a, const Tensor& b, const Dims& dims) {
    const profiler::OpScope scope("tensorsolve");
    check_device("tensorsolve", {&a, &b});
    check_floating("tensorsolve", a, "a");
    check_same_dtype("tensorsolve", a, b);
    Tensor moved = a;
    if (!dims.empty()) {
        Dims last;
        for (int i = 0; i < dims.size(); ++i) {
            wrap_dim("tensorsolve", dims[i], a.dim());
            last.push_back(a.dim() - dims.size() + i);
        }
        moved = movedim(a, dims, last);
    }
    const std::int64_t n = b.numel();
    const int first = std::min(b.dim(), moved.dim());
    if (product_of_sizes(moved.shape(), first, moved.dim()) != n || moved.numel() != n * n)
        throw ShapeError(
            str("tensorsolve: a must have the elements of a square matrix with the "
                "size of b: a is ",
                a.shape(), ", b is ", b.shape()));
    Shape shape;
    for (int i = first; i < moved.dim(); ++i) shape.push_back(moved.shape()[i]);
    const Tensor x =
        solution_of("tensorsolve", reshape(to(moved, f64), {n, n}), reshape(to(b, f64), {n, 1}));
    return to(reshape(x, shape), result_dtype(a));
}

Tensor vecdot(const Tensor& a, const Tensor& b, std::int64_t dim) {
    const profiler::OpScope scope("vecdot");
    check_device("vecdot", {&a, &b});
    wrap_dim("vecdot", dim, broadcast_shapes("vecdot", a.shape(), b.shape()).size());
    return sum(mul(a, b), dim);
}

Tensor vander(const Tensor& x, std::optional<std::int64_t> n) {
    const profiler::OpScope scope("vander");
    check_device("vander", {&x});
    check_compute("vander", x);
    if (x.dtype() == boolean) throw DTypeError("vander: x must contain numbers: x is bool");
    if (x.dim() == 0) throw ShapeError("vander: x must have at least one dimension: x is []");
    const std::int64_t count = n.value_or(x.size(-1));
    if (count <= 1)
        throw ValueError(str("vander: n must be above 1: ", count,
                             n ? "" : ", the last size of x, because n is not given"));
    const Tensor original = autocast_to_f32(x);
    const Tensor column = unsqueeze(original, -1);
    Shape shape = column.shape();
    shape[shape.size() - 1] = count - 1;
    const Tensor powers = cumprod(expand(column, shape), -1);  // i64 for integers
    return cat({ones_like(narrow(to(column, powers.dtype()), -1, 0, 1)), powers}, -1);
}

}  // namespace linalg

Tensor matrix_power(const Tensor& x, std::int64_t n) {
    const profiler::OpScope scope("matrix_power");
    check_device("matrix_power", {&x});
    check_compute("matrix_power", x);
    if (x.dim() < 2 || x.size(-1) != x.size(-2))
        throw ShapeError(str("matrix_power: x must be [..., n, n]: x ", x.shape()));
    if (n < 0) {
        const Tensor inverse =
            linalg::inverse_of("matrix_power", linalg::square_matrices("matrix_power", x));
        return to(matrix_power(inverse, -n), linalg::result_dtype(x));
    }
    if (n == 0) {
        const Tensor number = arange(x.size(-1), {.dtype = i64, .device = x.device()});
        const Tensor identity = to(eq(unsqueeze(number, 1), number), x.dtype());
        return record("matrix_power", clone(expand(identity, x.shape())), {x},
                      [](const Grads& dy, Needs) -> Grads { return {zeros_like(dy[0])}; });
    }
    Tensor result, square = x;
    for (; n > 0; n /= 2) {
        if (n % 2 == 1) result = result.defined() ? matmul(result, square) : square;
        if (n > 1) square = matmul(square, square);
    }
    return result.is_same(x) ? clone(x) : result;
}

}  // namespace axle
