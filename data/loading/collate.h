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
// shapes differ or have the maximum number of dimensions, DeviceError if devices differ, and
// ValueError for all other differences in structure, including dtypes; the message contains the key
// and the positions of the two samples in the batch. Throws ValueError if there are no samples or a
// value is null.
Tree collate(std::span<const Tree> samples);

}  // namespace axle::data
