// Leaves whose elements are sharded over processes (dist/sharding/).
//
// Each process stores a part of the elements of such a leaf as a tensor of its own, the local part.
// Optimizers update the local part, whose grad() is the part's gradient. The leaf keeps its shape,
// its elements are gathered when an op uses them, and grad() of the leaf throws UsageError.
#pragma once

#include <cstdint>
#include <functional>

#include "core/tensor.h"

namespace axle::autograd {

// Returns the local part of a sharded leaf, or `leaf` itself if it is not sharded. The local part
// is a 1-d tensor; it is empty if this process stores no elements.
Tensor local_part(const Tensor& leaf);
bool is_sharded(const Tensor& leaf);
// Returns whether the leaf has a gradient. For a sharded leaf, this includes a gradient that is not
// reduced yet.
bool has_gradient(const Tensor& leaf);
// Makes `leaf` a sharded leaf, of which this process stores the elements [begin, begin +
// part.numel()) in row-major order. An undefined part ends the sharding of the leaf. Throws
// UsageError if the tensor is not a leaf or has a gradient.
void set_local_part(const Tensor& leaf, const Tensor& part, std::int64_t begin = 0);
// Returns the index of the local part's first element in the leaf, or 0 if the leaf is not sharded.
std::int64_t local_begin(const Tensor& leaf);
// Returns the elements of `whole` that this process stores: a 1-d tensor if the leaf is sharded,
// otherwise a tensor of the leaf's shape. `whole` must have the shape of the leaf, or, if the leaf
// is a slice (core/autograd/tensor_slice.h), the shape of the whole tensor.
Tensor local_part_of(const Tensor& leaf, const Tensor& whole);
// Overwrites the elements that this process stores with the same elements of `whole`, converted to
// the dtype of the local part.
void copy_to_leaf(const Tensor& leaf, const Tensor& whole);

// Removes and returns the gradient that backward passes have accumulated for all elements of a
// sharded leaf; undefined if there is none. pending_gradient() only returns it.
Tensor take_pending_gradient(const Tensor& leaf);
Tensor pending_gradient(const Tensor& leaf);
// Replaces the pending gradient. Throws ShapeError unless `gradient` is undefined or has the shape
// of the leaf.
void set_pending_gradient(const Tensor& leaf, const Tensor& gradient);

// Calls f when the gradient rule that runs on this thread has returned, or immediately if no rule
// runs. If rules are nested, waits for the outermost rule. The operands of the rule are no longer
// used when f is called.
void run_after_rule(std::function<void()> f);

}  // namespace axle::autograd
