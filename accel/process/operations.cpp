#include "accel/process/operations.h"

#include "accel/process/partial_state.h"

namespace axle::accel {

std::shared_ptr<dist::ProcessGroup> current_process_group() {
    const std::optional<PartialState> state = PartialState::current();
    return state ? state->process_group() : dist::ProcessGroup::alone();
}

Tensor copy_tensor_to_devices(const std::optional<Tensor>& tensor) {
    const std::optional<PartialState> state = PartialState::current();
    return dist::copy_tensor_to_devices(*current_process_group(), tensor,
                                        state ? state->device() : Device::cpu());
}

}  // namespace axle::accel
