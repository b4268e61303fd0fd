// Private to core: views, the gradient rules of views, split_views(), and forms of view, reshape,
// expand, slice, select, diagonal and cat whose errors name another op.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/ops.h"

namespace axle {

// Returns a tensor with the given shape, strides and offset that shares x's storage.
inline Tensor make_view(const Tensor& x, const Shape& shape, const Strides& strides,
                        std::int64_t offset) {
    auto impl = std::make_shared<Impl>();
    impl->storage = x.impl()->storage;
    impl->shape = shape;
    impl->strides = strides;
    impl->offset = offset;
    impl->dtype = x.dtype();
    return Tensor(std::move(impl));
}

// Returns a tensor y of `shape` that contains zeros, except in its view part(y), which contains g.
template <class F>
Tensor embed(const Tensor& g, const Shape& shape, F&& part) {
    Tensor y = zeros(shape, {.dtype = g.dtype(), .device = g.device()});
    const NoGrad no_grad;
    part(y).copy_(g);
    return y;
}

// Records y = part(x), which selects elements of x. The gradient rule writes dy into a tensor of
// zeros, and the gradient of that rule selects elements again.
template <class F>
Tensor record_slice(const char* op, const Tensor& y, const Tensor& x, F part) {
    return record(op, y, {x}, [op, part, shape = x.shape()](const Grads& dy, Needs) -> Grads {
        return {record(op, embed(dy[0], shape, part), {dy[0]},
                       [part](const Grads& ddx, Needs) -> Grads { return {part(ddx[0])}; })};
    });
}

// Return what view(), reshape(), expand(), slice(), select(), diagonal() and cat() return for the
// same arguments. Their errors name the op `op`, which is composed of them. All except viewed(),
// reshaped() and concatenated() require a defined x.
Tensor viewed(const char* op, const Tensor& x, const Shape& shape);
Tensor reshaped(const char* op, const Tensor& x, const Shape& shape);
Tensor expanded(const char* op, const Tensor& x, const Shape& shape);
Tensor sliced(const char* op, const Tensor& x, std::int64_t dim, std::int64_t start,
              std::int64_t end, std::int64_t step);
Tensor selected(const char* op, const Tensor& x, std::int64_t dim, std::int64_t index);
Tensor diagonal_of(const char* op, const Tensor& x, std::int64_t offset, std::int64_t dim1,
                   std::int64_t dim2);
Tensor concatenated(const char* op, const std::vector<Tensor>& tensors, std::int64_t dim);

// Returns consecutive views of x along d. They share one node, so that a single cat combines their
// gradients.
std::vector<Tensor> split_views(const Tensor& x, int d, const std::vector<std::int64_t>& sizes);

}  // namespace axle
