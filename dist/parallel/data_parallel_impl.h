// Private to dist: what DataParallel and Join share.
#pragma once

#include <memory>
#include <vector>

#include "dist/parallel/data_parallel.h"
#include "dist/parallel/reducer.h"

namespace axle::inline v0::dist {

struct DataParallel::Impl {
    Impl(nn::Module& model_, std::shared_ptr<ProcessGroup> group_, DataParallelOptions options);

    // A rank without data answers one before_forward of the others.
    void shadow_forward(int root);
    // Or one sum().
    void shadow_sum();
    // One rank's parameters and buffers for everybody.
    void take_model_of(int root);

    nn::Module& model;
    std::shared_ptr<ProcessGroup> group;
    std::vector<Tensor> parameters, buffers;
    bool broadcasts_buffers;
    bool buffers_are_due = true;
    Reducer reducer;
};

}  // namespace axle::inline v0::dist
