// Private to dist: slices of tensors that are divided among the ranks of a group.
#pragma once

#include <memory>
#include <utility>

#include "core/autograd/tensor_slice.h"
#include "dist/group/process_group.h"

namespace axle::dist {

// The slice of this rank. layout.parts must divide the size of the group. If there are fewer parts
// than ranks, consecutive ranks have the same part.
class GroupSlice : public autograd::TensorSlice {
  public:
    GroupSlice(autograd::SliceLayout layout, std::shared_ptr<ProcessGroup> group)
        : TensorSlice(std::move(layout)), group_(std::move(group)) {}

    Tensor gather(const Tensor& slice) const override;
    bool is_first_copy() const override { return group_->rank() % copies() == 0; }
    const void* processes() const override { return group_.get(); }
    Tensor gather_numbers(const Tensor& number) const override {
        return group_->all_gather(number);
    }

  private:
    int copies() const { return group_->size() / static_cast<int>(layout().parts); }

    std::shared_ptr<ProcessGroup> group_;
};

}  // namespace axle::dist
