#include "core/autograd/tensor_slice.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/autograd/autograd_meta.h"
#include "core/autograd/local_part.h"
#include "core/ops.h"

namespace axle::autograd {

Shape SliceLayout::slice_shape() const {
    Shape shape = whole;
    shape[dim] = padded / parts;
    return shape;
}

Tensor SliceLayout::cut(const Tensor& tensor) const {
    const NoGrad no_grad;
    const std::int64_t segment = padded / segments, size = segment / parts;
    std::vector<Tensor> pieces;
    for (std::int64_t s = 0; s < segments; ++s) {
        const std::int64_t begin = std::min(s * segment + part * size, whole[dim]);
        const std::int64_t length = std::min(size, whole[dim] - begin);
        pieces.push_back(narrow(tensor, dim, begin, length));
        if (length == size) continue;
        Shape missing = whole;
        missing[dim] = size - length;
        pieces.push_back(zeros(missing, {.dtype = tensor.dtype(), .device = tensor.device()}));
    }
    return cat(pieces, dim);
}

Tensor SliceLayout::join(const std::vector<Tensor>& slices) const {
    const NoGrad no_grad;
    const std::int64_t size = padded / segments / parts;
    std::vector<Tensor> pieces;
    for (std::int64_t s = 0; s < segments; ++s)
        for (const Tensor& slice : slices) pieces.push_back(narrow(slice, dim, s * size, size));
    return narrow(cat(pieces, dim), dim, 0, whole[dim]).contiguous();
}

namespace {

// Makes a leaf use the memory, the shape and the strides of another tensor.
void set_elements(const Tensor& leaf, const Tensor& elements) {
    Impl& impl = *leaf.impl();
    impl.storage = elements.impl()->storage;
    impl.shape = elements.shape();
    impl.strides = elements.strides();
    impl.offset = elements.impl()->offset;
    impl.derived = {};
}

}  // namespace

std::shared_ptr<const TensorSlice> slice_of(const Tensor& leaf) {
    const OwningPtr<Meta>& meta = leaf.impl()->autograd;
    return meta == nullptr ? nullptr : meta->slice;
}

void set_slice(const Tensor& leaf, std::shared_ptr<const TensorSlice> slice) {
    const auto refuse = [&](const char* reason) {
        throw UsageError(str("set_slice: the tensor of shape ", leaf.shape(), " ", reason));
    };
    if (!leaf.is_leaf()) refuse("must be a leaf: it is the result of an operation");
    if (slice_of(leaf) != nullptr) refuse("is a slice already; call join_slice() first");
    if (is_sharded(leaf))
        refuse("is sharded over processes; call set_slice() before the model is sharded");
    if (pending_gradient(leaf).defined()) refuse("has a gradient; call zero_grad() first");
    const SliceLayout& layout = slice->layout();
    if (leaf.shape() != layout.whole)
        throw ShapeError(str("set_slice: shapes differ: tensor ", leaf.shape(), ", whole tensor ",
                             layout.whole));
    set_elements(leaf, layout.cut(leaf.detach()));
    meta_of(leaf).slice = std::move(slice);
}

void copy_slice(const Tensor& leaf, const Tensor& copy) {
    if (auto slice = slice_of(leaf)) meta_of(copy).slice = std::move(slice);
}

void join_slice(const Tensor& leaf) {
    const auto slice = slice_of(leaf);
    if (slice == nullptr)
        throw UsageError(str("join_slice: the tensor is not a slice: shape ", leaf.shape()));
    leaf.zero_grad();
    set_elements(leaf, slice->gather(leaf));
    meta_of(leaf).slice = nullptr;
}

Shape whole_shape(const Tensor& leaf) {
    const auto slice = slice_of(leaf);
    return slice == nullptr ? leaf.shape() : slice->layout().whole;
}

Tensor slice_for(const Tensor& leaf, const Tensor& whole) {
    const auto slice = slice_of(leaf);
    if (slice == nullptr || whole.shape() != slice->layout().whole) return whole;
    return slice->layout().cut(whole);
}

}  // namespace axle::autograd
