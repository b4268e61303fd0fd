// Private to accel: the objects that implement an Accelerator; its methods call them.
#pragma once

#include <memory>

#include "accel/capture/step_capture.h"
#include "accel/loop/loop_state.h"
#include "accel/prepare/preparation.h"
#include "accel/state/state_files.h"
#include "accel/tracking/tracking.h"
#include "dist/sequence/context_parallel.h"

namespace axle::accel {

// The objects that an Accelerator owns. Must not move, because members refer to earlier members.
struct AcceleratorParts {
    AcceleratorParts(ProjectConfiguration project, PreparationOptions options,
                     const PartialState& processes, std::shared_ptr<LoopState> loop_state,
                     std::unique_ptr<Tracking> trackers)
        : loop(std::move(loop_state)),
          preparation(std::move(options), processes, loop),
          files(std::move(project), processes, preparation, *loop),
          capture(preparation, *loop, processes.device()),
          tracking(std::move(trackers)) {}
    AcceleratorParts(const AcceleratorParts&) = delete;
    AcceleratorParts& operator=(const AcceleratorParts&) = delete;

    std::shared_ptr<LoopState> loop;  // shared with the hooks of prepared objects
    Preparation preparation;
    StateFiles files;
    StepCapture capture;
    std::unique_ptr<Tracking> tracking;
    // Attention to sequences that the group "cp" of the mesh shares; nullptr before its first use.
    std::shared_ptr<dist::ContextParallel> context_parallel = {};
    // Whether maybe_context_parallel() has logged that it has no effect.
    bool has_explained_context = false;
};

}  // namespace axle::accel
