#include "accel/process/accelerator_processes.h"

#include "core/ops.h"

namespace axle::accel {

bool AcceleratorProcesses::check_trigger() {
    const Tensor flag = full({1}, triggered_ ? 1 : 0, {i32});
    state_.process_group()->all_reduce(flag, dist::ReduceOp::max);
    const bool triggered = flag.item() > 0;
    if (triggered) triggered_ = false;
    return triggered;
}

CheckpointRequest AcceleratorProcesses::checkpoint_request() const {
    const CheckpointRequest own = take_checkpoint_request();
    if (num_processes() == 1) return own;
    const Tensor strongest = full({1}, static_cast<int>(own), {i32});
    state_.process_group()->all_reduce(strongest, dist::ReduceOp::max);
    return static_cast<CheckpointRequest>(strongest.item_int());
}

}  // namespace axle::accel
