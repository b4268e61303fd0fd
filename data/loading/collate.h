// Collating: samples to a batch.
#pragma once

#include <functional>
#include <span>

#include "core/tree/tree.h"

namespace axle::inline v0::data {

using Collate = std::function<Tree(std::span<const Tree> samples)>;

// PyTorch's default_collate. Tensors are stacked; numbers become a tensor (f64, i64 if all are
// integers, boolean if all are booleans); strings a list; maps and lists are collated member by
// member. All samples must be built alike: tensors of other shapes are a ShapeError, anything else
// a ValueError, both with the key and the samples' places in the batch.
Tree collate(std::span<const Tree> samples);

}  // namespace axle::inline v0::data
