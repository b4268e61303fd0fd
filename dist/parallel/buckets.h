// Private to dist: assigns gradients to buckets and lays them out in flat memory.
#pragma once

#include <cstddef>
#include <vector>

#include "dist/parallel/data_parallel.h"

namespace axle::dist {

// Returns the dtype in which gradients of this parameter are accumulated.
DType gradient_dtype(const Tensor& parameter);

// Returns parameter indices by bucket, in the order of reduction. A bucket holds gradients of one
// dtype and device. It ends with the parameter that reaches its size: `first_bytes` for the first
// bucket of each dtype and device, `bytes` for the other buckets.
std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<Tensor>& parameters,
                                                   const std::vector<std::size_t>& order,
                                                   std::size_t first_bytes, std::size_t bytes);

// Creates the planned buckets, filled with zeros.
std::vector<GradientBucket> make_buckets(const std::vector<Tensor>& parameters,
                                         const std::vector<std::vector<std::size_t>>& plan);

// Returns a bucket with the same parameters and index, filled with zeros.
GradientBucket make_zero_bucket(const GradientBucket& bucket);

// Returns consecutive views of a flat tensor, in the shapes of `shapes`.
std::vector<Tensor> views_in(const Tensor& flat, const std::vector<Tensor>& shapes);

// Returns whether a and b are the same elements in memory.
bool is_alias(const Tensor& a, const Tensor& b);

// Broadcast the root's values or average over all ranks, with many tensors in one message.
void broadcast_together(ProcessGroup& group, const std::vector<Tensor>& tensors, int root);
void average_together(ProcessGroup& group, const std::vector<Tensor>& tensors);

}  // namespace axle::dist
