// Private to dist: ring attention, in which keys and values are passed around a ring of processes.
#pragma once

#include <memory>
#include <vector>

#include "core/tensor.h"
#include "dist/group/process_group.h"
#include "kernels/ops/attention.h"
#include "nn/layers/sequence_policy.h"

namespace axle::dist {

// Computes attention of this rank's queries to the keys of all ranks (Liu et al., "Ring attention
// with blockwise transformers for near-infinite context", 2023). positions[r] contains the
// positions of rank r's tokens. In each step, a rank computes attention to the part of the keys and
// values that it has received, and at the same time sends this part to the next rank. The results
// are combined by their log-sum-exps. In the backward pass, the gradients of keys and values are
// sent with their part, in f32 or f64. A second derivative throws UsageError.
Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                      const kernels::AttentionParams& params,
                      const std::vector<std::vector<nn::PositionRange>>& positions,
                      const std::shared_ptr<ProcessGroup>& group);

}  // namespace axle::dist
