// Private to dist: which gradients lie together, and in which order.
#pragma once

#include <cstddef>
#include <vector>

#include "dist/parallel/data_parallel.h"

namespace axle::inline v0::dist {

// The dtype that gradients of this parameter are gathered in.
DType gradient_dtype(const Tensor& parameter);

// Parameters by bucket, buckets in the order of their reduction. A bucket has gradients of one
// dtype and device; it is full with the parameter that brings it to its size: `first_bytes` for the
// first bucket of each kind, `bytes` for the others.
std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<Tensor>& parameters,
                                                   const std::vector<std::size_t>& order,
                                                   std::size_t first_bytes, std::size_t bytes);

// Of zeros.
std::vector<GradientBucket> make_buckets(const std::vector<Tensor>& parameters,
                                         const std::vector<std::vector<std::size_t>>& plan);

// Another bucket of the same parameters and index, of zeros.
GradientBucket zero_twin(const GradientBucket& bucket);

// Views of a flat tensor in the shapes of the tensors, one behind the other.
std::vector<Tensor> views_in(const Tensor& flat, const std::vector<Tensor>& shapes);

// Whether a is b's very elements.
bool is_alias(const Tensor& a, const Tensor& b);

// The root's values for everybody, and everybody's mean: many tensors in one message.
void broadcast_together(ProcessGroup& group, const std::vector<Tensor>& tensors, int root);
void average_together(ProcessGroup& group, const std::vector<Tensor>& tensors);

}  // namespace axle::inline v0::dist
