// Collectives as differentiable ops, for models whose tensors are divided among the processes of a
// group.
//
// A value is either replicated (it and its gradient are equal on all ranks) or local (each rank has
// its own value). copy_to_group() and split_along() convert a replicated value to local values.
// reduce_from_group() and all_gather_along() with GradientKind::same do the reverse. If losses are
// replicated, gradients of replicated values are equal on all ranks, and gradients of local values
// belong to the rank's own value.
//
// All ranks must call the same ops in the same order, with tensors of equal dtypes and shapes (for
// exchange_rows(), any numbers of rows), or all ranks throw CommError (see ProcessGroup). They must
// also run the backward pass together. The gradient rules use the same ops, so that results can be
// differentiated again. In a group of one process, all ops return x and check no arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "dist/group/process_group.h"

namespace axle::dist {

// The use of a gathered tensor. It determines how the gradient of the tensor is computed.
enum class GradientKind {
    partial,  // ranks compute different values from the result: gradients are summed
    same,     // ranks compute equal values from the result: each rank takes its slice
};

// Returns x. The gradient is the sum of the gradients of all ranks.
Tensor copy_to_group(const Tensor& x, const std::shared_ptr<ProcessGroup>& group);
// Returns the tensors. Their gradients are summed over all ranks. If all tensors that require a
// gradient have one dtype and the gradients are not differentiated again, one all_reduce computes
// all sums. Undefined tensors and tensors that require no gradient are returned unchanged.
std::vector<Tensor> copy_to_group(const std::vector<Tensor>& tensors,
                                  const std::shared_ptr<ProcessGroup>& group);
// Returns the sum of x over all ranks. The gradient of x is the gradient of the result.
Tensor reduce_from_group(const Tensor& x, const std::shared_ptr<ProcessGroup>& group);

// Concatenates the tensors x of all ranks, in rank order, along `dim`. This function and the
// following ones throw IndexError if a dimension is out of range, and ShapeError for a 0-d tensor.
Tensor all_gather_along(const Tensor& x, std::int64_t dim,
                        const std::shared_ptr<ProcessGroup>& group, GradientKind kind);
// Splits x into size() equal parts along `dim` and returns part rank(). Communicates in the
// backward pass only. Throws ShapeError if the size of `dim` is not a multiple of size().
Tensor split_along(const Tensor& x, std::int64_t dim, const std::shared_ptr<ProcessGroup>& group);
// Returns split_along(reduce_from_group(x)), but ranks receive only their own slice of the sum.
Tensor reduce_scatter_along(const Tensor& x, std::int64_t dim,
                            const std::shared_ptr<ProcessGroup>& group);
// Splits x into size() equal parts along split_dim, sends part r to rank r, and concatenates the
// received parts along concat_dim, in rank order. Throws ShapeError if the size of split_dim is not
// a multiple of size().
Tensor all_to_all_along(const Tensor& x, std::int64_t split_dim, std::int64_t concat_dim,
                        const std::shared_ptr<ProcessGroup>& group);

// Exchanges rows of x [N, ...]: sends sends[r] rows to rank r, in order. Returns the received rows
// in rank order, receives[r] rows from rank r. Throws ShapeError unless `sends` has size() numbers
// that add up to N. `receives` is used only in the backward pass and must be the numbers of rows
// that the ranks send.
Tensor exchange_rows(const Tensor& x, const std::vector<std::int64_t>& sends,
                     const std::vector<std::int64_t>& receives,
                     const std::shared_ptr<ProcessGroup>& group);

// The collectives that the ops in this header have run on this thread, including their gradients.
struct CollectiveCounts {
    std::int64_t all_reduces = 0, all_gathers = 0, reduce_scatters = 0, all_to_alls = 0;
    // The sum of the sizes of the undivided tensors: results of all-gathers, and operands of the
    // other collectives.
    std::int64_t bytes = 0;

    bool operator==(const CollectiveCounts&) const = default;
};
CollectiveCounts collective_counts();
void reset_collective_counts();

}  // namespace axle::dist
