#include <array>

#include "core/autograd/autocast.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/products/operands.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Returns the elements of x along d (of size 3), rotated so that element `first` is the first.
Tensor rotated(const Tensor& x, int d, std::int64_t first) {
    return cat({narrow(x, d, first, 3 - first), narrow(x, d, 0, first)}, d);
}

// The paired dimensions of an operand, and its other dimensions in order.
struct PairedDims {
    Dims paired, free;
    std::int64_t paired_size = 1, free_size = 1;

    PairedDims(const Tensor& x, const Dims& pairs) {
        std::array<bool, kMaxDims> is_paired = {};
        for (const std::int64_t dim : pairs) {
            const int d = wrap_dim("tensordot", dim, x.dim());
            if (is_paired[d])
                throw ValueError(str("tensordot: duplicate dimension: dims is ", pairs));
            is_paired[d] = true;
            paired.push_back(d);
            paired_size *= x.shape()[d];
        }
        for (int d = 0; d < x.dim(); ++d) {
            if (is_paired[d]) continue;
            free.push_back(d);
            free_size *= x.shape()[d];
        }
    }
};

Dims joined(Dims a, const Dims& b) {
    for (const std::int64_t d : b) a.push_back(d);
    return a;
}

Tensor contract(Tensor a, Tensor b, const Dims& dims_a, const Dims& dims_b) {
    if (dims_a.size() != dims_b.size())
        throw ShapeError(str("tensordot: the numbers of dimensions differ: dims_a is ", dims_a,
                             ", dims_b is ", dims_b));
    for (int i = 0; i < dims_a.size(); ++i) {
        const std::int64_t n = a.size(dims_a[i]), m = b.size(dims_b[i]);
        if (n == m) continue;
        if (n != 1 && m != 1)
            throw ShapeError(str("tensordot: the sizes of paired dimensions differ: a is ",
                                 a.shape(), ", dims_a ", dims_a, ", b is ", b.shape(), ", dims_b ",
                                 dims_b));
        if (n == 1)
            b = to(sum(b, dims_b[i], true), b.dtype());
        else
            a = to(sum(a, dims_a[i], true), a.dtype());
    }
    const PairedDims left(a, dims_a), right(b, dims_b);
    Shape shape;
    for (const std::int64_t d : left.free) shape.push_back(a.shape()[static_cast<int>(d)]);
    for (const std::int64_t d : right.free) shape.push_back(b.shape()[static_cast<int>(d)]);
    const Tensor rows =
        reshape(permute(a, joined(left.free, left.paired)), {left.free_size, left.paired_size});
    const Tensor columns =
        reshape(permute(b, joined(right.paired, right.free)), {right.paired_size, right.free_size});
    return reshape(matmul(rows, columns), shape);
}

Tensor tensordot_of(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b) {
    const auto [left, right] = widest_under_autocast(a, b);
    const AutocastGuard off(std::nullopt);
    check_factors("tensordot", left, right);
    return contract(left, right, dims_a, dims_b);
}

}  // namespace

Tensor cross(const Tensor& a, const Tensor& b, std::optional<std::int64_t> dim) {
    const profiler::OpScope scope("cross");
    check_device("cross", {&a, &b});
    const Shape shape = broadcast_shapes("cross", a.shape(), b.shape());
    int d = 0;
    if (dim)
        d = wrap_dim("cross", *dim, shape.size());
    else
        while (d < shape.size() && shape[d] != 3) ++d;
    const int a_d = d - (shape.size() - a.dim()), b_d = d - (shape.size() - b.dim());
    if (d >= shape.size() || a_d < 0 || b_d < 0 || a.shape()[a_d] != 3 || b.shape()[b_d] != 3)
        throw ShapeError(str("cross: a and b must have size 3 along ",
                             dim ? str("dimension ", *dim) : "one dimension", ": a is ", a.shape(),
                             ", b is ", b.shape()));
    return sub(mul(rotated(a, a_d, 1), rotated(b, b_d, 2)),
               mul(rotated(a, a_d, 2), rotated(b, b_d, 1)));
}

Tensor tensordot(const Tensor& a, const Tensor& b, std::int64_t dims) {
    const profiler::OpScope scope("tensordot");
    check_device("tensordot", {&a, &b});
    if (dims < 0 || dims > a.dim() || dims > b.dim())
        throw ValueError(str("tensordot: dims must be in [0, number of dimensions]: ", dims,
                             ", a is ", a.shape(), ", b is ", b.shape()));
    Dims last, first;
    for (std::int64_t i = 0; i < dims; ++i) last.push_back(a.dim() - dims + i), first.push_back(i);
    return tensordot_of(a, b, last, first);
}
Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b) {
    const profiler::OpScope scope("tensordot");
    check_device("tensordot", {&a, &b});
    return tensordot_of(a, b, dims_a, dims_b);
}

// Dimension d of the result consists of a dimension of a and a dimension of b, which are separate
// dimensions of the elementwise product.
Tensor kron(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("kron");
    check_device("kron", {&a, &b});
    const int n = a.dim() > b.dim() ? a.dim() : b.dim();
    if (2 * n > kMaxDims)
        throw ShapeError(str("kron: the operands can have at most ", kMaxDims / 2,
                             " dimensions: a is ", a.shape(), ", b is ", b.shape()));
    Shape left, right, result;
    for (int i = 0; i < n; ++i) {
        const int a_d = i - (n - a.dim()), b_d = i - (n - b.dim());
        const std::int64_t size_a = a_d < 0 ? 1 : a.shape()[a_d];
        const std::int64_t size_b = b_d < 0 ? 1 : b.shape()[b_d];
        left.push_back(size_a), left.push_back(1);
        right.push_back(1), right.push_back(size_b);
        result.push_back(size_a * size_b);
    }
    return reshape(mul(reshape(a, left), reshape(b, right)), result);
}

}  // namespace axle
