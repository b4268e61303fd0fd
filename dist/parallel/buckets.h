// Private to dist: assigns gradients to buckets, lays them out in flat memory, and broadcasts or
// averages tensors in buckets.
#pragma once

#include <cstddef>
#include <vector>

#include "dist/parallel/data_parallel.h"

namespace axle::dist {

// Returns the dtype in which the gradients of this parameter are accumulated.
DType gradient_dtype(const Tensor& parameter);

// Returns the parameter indices of each bucket, in the order of reduction. A bucket has gradients
// of one dtype and device. Parameters are added to a bucket in `order` until it has at least
// `bytes` bytes. The first bucket of each dtype and device is full at `first_bytes` bytes, if this
// is less.
std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<Tensor>& parameters,
                                                   const std::vector<std::size_t>& order,
                                                   std::size_t first_bytes, std::size_t bytes);

// Creates the buckets of a plan, filled with zeros.
std::vector<GradientBucket> make_buckets(const std::vector<Tensor>& parameters,
                                         const std::vector<std::vector<std::size_t>>& plan);

// Returns a bucket with the same parameters and index, filled with zeros.
GradientBucket make_zero_bucket(const GradientBucket& bucket);

// Returns consecutive views of a 1-d tensor with the shapes of the tensors `shapes`.
std::vector<Tensor> views_in(const Tensor& flat, const std::vector<Tensor>& shapes);

// Returns whether a and b have the same elements in the same memory.
bool is_alias(const Tensor& a, const Tensor& b);

// broadcast_together() overwrites the tensors with the root's values, and average_together() with
// their mean over all ranks. Both combine several tensors in one collective.
void broadcast_together(ProcessGroup& group, const std::vector<Tensor>& tensors, int root);
void average_together(ProcessGroup& group, const std::vector<Tensor>& tensors);

}  // namespace axle::dist
