// Private to dist: the cross entropy of logits that are divided along the vocabulary.
#pragma once

#include <cstdint>
#include <memory>

#include "core/tensor.h"
#include "dist/group/process_group.h"

namespace axle::dist {

// Returns cross_entropy(linear(x, whole weight, whole bias), targets). Each rank passes n rows of
// the whole weight [vocabulary, K], beginning at row rank() * n, as `weight` [n, K] and `bias` [n]
// (may be undefined). Rows at the end that exceed the vocabulary are ignored. x [N, K] and targets
// [N] are equal on all ranks. The gradient of x contains only the contribution of the rank's rows.
//
// Computes the logits chunk by chunk, as linear_cross_entropy() does. For each chunk the ranks
// exchange two numbers per row: the log-sum-exp of their logits, and the target's logit. Throws the
// errors of linear_cross_entropy(). Gradients cannot be differentiated again (UsageError).
Tensor vocabulary_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                const Tensor& targets, std::int64_t vocabulary,
                                const std::shared_ptr<ProcessGroup>& group);

}  // namespace axle::dist
