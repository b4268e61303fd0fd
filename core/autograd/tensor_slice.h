// Leaves that are slices of a larger tensor, which processes divide among themselves
// (dist/tensor_parallel/).
//
// Such a leaf is an ordinary tensor with the shape of its slice. States are loaded in the shape of
// the whole tensor or of the slice, and saved as whole tensors (dist/sharding/full_state.h). Norms
// of gradients include the slices of all processes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.h"

namespace axle::autograd {

// The division of a tensor into slices along one dimension.
struct SliceLayout {
    Shape whole;
    int dim = 0;
    // The dimension consists of this number of equal segments, such as the queries, keys and values
    // of a fused projection. A slice contains a part of each segment.
    std::int64_t segments = 1;
    // The size of the dimension with zeros appended, so that it can be divided.
    std::int64_t padded = 0;
    std::int64_t parts = 1, part = 0;  // this process has part `part` of `parts` parts

    Shape slice_shape() const;  // the shape of a slice; all slices have the same shape
    // Returns a copy of this process's slice of `tensor`, which has the shape `whole`.
    Tensor cut(const Tensor& tensor) const;
    // Returns the tensor of shape `whole` whose slices are slices[0], slices[1], ...
    Tensor join(const std::vector<Tensor>& slices) const;
};

// A slice, and the processes that share the whole tensor.
class TensorSlice {
  public:
    explicit TensorSlice(SliceLayout layout) : layout_(layout) {}
    virtual ~TensorSlice() = default;
    const SliceLayout& layout() const { return layout_; }

    // Returns the whole tensor of which all processes have slices. All processes must call this
    // function together.
    virtual Tensor gather(const Tensor& slice) const = 0;
    // Returns false if a process with a lower rank has the same slice. Sums over all slices count
    // only the first copy.
    virtual bool is_first_copy() const = 0;
    // Returns whether backward computes the gradient over the batches of all data parallel
    // processes, as in expert parallelism. DataParallel then neither broadcasts the slice nor
    // reduces its gradient.
    virtual bool is_reduced() const { return false; }
    // Returns an address that identifies the group of processes that share the tensor.
    virtual const void* processes() const = 0;
    // Gathers the 0-d tensor `number` of each process, as a 1-d tensor in rank order. All processes
    // must call this function.
    virtual Tensor gather_numbers(const Tensor& number) const = 0;

  private:
    SliceLayout layout_;
};

// Returns the layout and processes of a leaf that is a slice, or nullptr for another leaf.
std::shared_ptr<const TensorSlice> slice_of(const Tensor& leaf);
// Replaces the elements of a leaf by a slice of them; the leaf keeps its identity, dtype and
// device. Throws UsageError if the tensor is not a leaf, is already a slice or sharded, or has a
// gradient. Throws ShapeError if its shape is not slice->layout().whole.
void set_slice(const Tensor& leaf, std::shared_ptr<const TensorSlice> slice);
// If `leaf` is a slice, marks `copy`, a leaf with the same elements, as the same slice.
void copy_slice(const Tensor& leaf, const Tensor& copy);
// Replaces the elements of a slice by the whole tensor, which is gathered from all processes, and
// removes its gradient. All processes must call this function together. Throws UsageError if `leaf`
// is not a slice.
void join_slice(const Tensor& leaf);
// Returns the shape of the whole tensor, which is the leaf's shape if the leaf is not a slice.
Shape whole_shape(const Tensor& leaf);
// Returns the slice of `whole` that corresponds to the leaf. Returns `whole` itself if the leaf is
// not a slice, or if `whole` does not have the shape of the whole tensor.
Tensor slice_for(const Tensor& leaf, const Tensor& whole);

}  // namespace axle::autograd
