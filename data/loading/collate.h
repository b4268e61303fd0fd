// collate(), which combines samples into a batch.
#pragma once

#include <functional>
#include <span>

#include "core/tree/tree.h"

namespace axle::data {

// Combines samples into a batch. Several threads call it concurrently.
using Collate = std::function<Tree(std::span<const Tree> samples)>;

// Combines samples into a batch as default_collate of PyTorch does. Tensors are stacked. Booleans
// become a bool tensor. Numbers become a tensor, which is i64 if all are integers, otherwise f64.
// Strings become a list. Maps and lists are collated member by member. Throws ShapeError if tensor
// shapes differ, and ValueError for differences in dtype or structure; the message contains the
// member and the positions of the two samples in the batch. Also throws ShapeError if tensors have
// the maximum number of dimensions, DeviceError if devices differ, and ValueError if there are no
// samples, a value is null, or values are nested deeper than kMaxTreeDepth.
Tree collate(std::span<const Tree> samples);

}  // namespace axle::data
