// Collating: combines samples into a batch.
#pragma once

#include <functional>
#include <span>

#include "core/tree/tree.h"

namespace axle::data {

using Collate = std::function<Tree(std::span<const Tree> samples)>;

// Combines samples as PyTorch's default_collate does. Tensors are stacked; numbers become a tensor
// (f64; i64 if all are integers; bool if all are booleans); strings become a list; maps and lists
// are collated member by member. All samples must have the same structure: different tensor shapes
// throw ShapeError, other differences ValueError, with the key and the samples' positions in the
// batch.
Tree collate(std::span<const Tree> samples);

}  // namespace axle::data
