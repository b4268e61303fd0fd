// Matrix products. A batch of matrices times a single matrix is computed as one product with more
// rows, and the gradient of the single matrix as one product with a longer inner dimension.
#include "kernels/ops/matmul.h"

#include "core/autograd/autocast.h"
#include "core/ops/linear.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Returns the view of x [..., r, c] with the batch dimensions of the product. Repeated dimensions
// have stride 0.
ConstView with_batch(const Tensor& x, const Shape& batch) {
    const ConstView v = x.view();
    ConstView result;
    result.data = v.data, result.dtype = v.dtype, result.ndim = batch.size() + 2;
    const int missing = result.ndim - v.ndim;
    for (int d = 0; d < result.ndim; ++d) {
        const bool repeats = d < missing || (d < batch.size() && v.shape[d - missing] != batch[d]);
        result.shape[d] = d < batch.size() ? batch[d] : v.shape[d - missing];
        result.stride[d] = repeats ? 0 : v.stride[d - missing];
    }
    return result;
}

Shape batch_of(const Tensor& x) {
    Shape shape = x.shape();
    shape.erase(shape.size() - 1);
    shape.erase(shape.size() - 1);
    return shape;
}

Shape common_batch(const Tensor& a, const Tensor& b) {
    const Shape left = batch_of(a), right = batch_of(b);
    if (left == right) return left;
    try {
        return broadcast_shapes("matmul", left, right);
    } catch (const ShapeError&) {
        throw ShapeError(str("matmul: batch dimensions cannot be broadcast: a is ", a.shape(),
                             ", b is ", b.shape()));
    }
}

// Returns the product a b. a and b have at least two dimensions, the same dtype and matching inner
// dimensions.
Tensor product(const Tensor& a, const Tensor& b) {
    const Shape batch = common_batch(a, b);
    Shape shape = batch;
    shape.push_back(a.size(-2));
    shape.push_back(b.size(-1));
    Tensor c = Tensor::empty(shape, {.dtype = a.dtype(), .device = a.device()});
    launch(a.device(), [&](auto& on) {
        kernels::matmul(on, with_batch(a, batch), with_batch(b, batch), c.view());
    });
    // a is saved only if b needs a gradient, and b only if a needs a gradient.
    return record(
        "matmul", c, {a, b},
        [a = saved(b.requires_grad() ? a : Tensor()), b = saved(a.requires_grad() ? b : Tensor())](
            const Grads& dy, Needs needs) -> Grads {
            Grads result(2);
            if (needs[0]) result[0] = matmul(dy[0], transpose(b, -2, -1));
            if (needs[1]) result[1] = matmul(transpose(a, -2, -1), dy[0]);
            return result;
        });
}

}  // namespace

Tensor matmul(const Tensor& a_in, const Tensor& b_in) {
    const profiler::OpScope scope("matmul");
    check_device("matmul", {&a_in, &b_in});
    const Tensor a = autocast(a_in), b = autocast(b_in);
    check_compute("matmul", a, "a");
    check_same_dtype("matmul", a, b);
    if (a.dtype() == boolean)
        throw DTypeError("matmul: not supported for booleans; convert them to an integer dtype");
    if (a.dim() == 0 || b.dim() == 0)
        throw ShapeError(str("matmul: 0-d operands are not supported; use mul: a is ", a.shape(),
                             ", b is ", b.shape()));
    if (a.size(-1) != b.size(b.dim() == 1 ? 0 : -2))
        throw ShapeError(
            str("matmul: inner dimensions differ: a is ", a.shape(), ", b is ", b.shape()));

    if (a.dim() == 1) return squeeze(matmul(unsqueeze(a, 0), b), b.dim() == 1 ? 0 : -2);
    if (b.dim() == 1) return squeeze(matmul(a, unsqueeze(b, 1)), -1);
    if (a.dim() == 2 || b.dim() > 2) return product(a, b);
    Shape shape = a.shape();
    shape[shape.size() - 1] = b.size(1);
    return view(product(flatten_rows(a), b), shape);
}

}  // namespace axle
