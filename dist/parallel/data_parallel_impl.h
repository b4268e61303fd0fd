// Private to dist: the state that DataParallel and Join share.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/parallel/data_parallel.h"
#include "dist/parallel/reducer.h"

namespace axle::dist {

class LocalSgd;

struct DataParallel::Impl {
    Impl(nn::Module& model_, std::shared_ptr<ProcessGroup> group_, DataParallelOptions options);

    // Called on a rank without data to take part in one before_forward() of the other ranks.
    void shadow_forward(int root);
    // Called on a rank without data to take part in one sum() of the other ranks.
    void shadow_sum();
    // Broadcasts the parameters and buffers of the root.
    void take_model_of(int root);

    nn::Module* model;
    std::shared_ptr<ProcessGroup> group;
    std::vector<Tensor> parameters, buffers;
    std::vector<Tensor> changing_buffers;  // the buffers that are not constant
    bool broadcasts_buffers;
    bool buffers_are_due = true;
    LocalSgd* local_sgd = nullptr;     // the active scope
    std::int64_t local_sgd_steps = 0;  // the loaded number of steps, used by the next scope
    Reducer reducer;
};

}  // namespace axle::dist
