// Private to optim: the members of an optimizer that its header does not need.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "optim/optimizer.h"

namespace axle::optim {

struct Optimizer::Private {
    std::unordered_map<const Impl*, ParamState> states;
    std::string state_folder;  // see offload_states()

    // The kernel table of the current step. Every step fills it again, which is as fast as checking
    // whether it has changed.
    std::vector<kernels::Slot> slots;
    std::vector<Tensor> updated;
    // Contiguous copies of strided parameters (copied back after the step) and of strided
    // gradients.
    std::vector<std::pair<Tensor, Tensor>> dense_copies;
    std::vector<Tensor> dense_grads;
};

}  // namespace axle::optim
