// The collectives of accelerate.utils on Trees or user-defined types (core/tree/structure.h). They
// run on the processes of the program's Accelerator or PartialState (without the option
// process_group); without such an object, on this process only. dist/group/operations.h documents
// each operation. Also makes the functions of core/tree/tree_utils.h available in axle::accel; they
// do not communicate.
//
//     Tree all = accel::gather(batch);
//     auto lines = accel::gather_object(std::vector<std::string>{line});
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "core/tree/structure.h"
#include "core/tree/tree_utils.h"
#include "dist/group/operations.h"
#include "dist/group/process_group.h"

namespace axle::accel {

using axle::concatenate;
using axle::convert_to_fp32;
using axle::find_batch_size;
using axle::find_device;
using axle::get_data_structure;
using axle::get_shape;
using axle::ignorant_find_batch_size;
using axle::initialize_tensors;
using axle::listify;
using axle::pad_input_tensors;
using axle::recursively_apply;
using axle::send_to_device;
using axle::slice_tensors;

// Returns the group of PartialState::current(), or a group of this process alone.
std::shared_ptr<dist::ProcessGroup> current_process_group();

// With the default type, a braced list is converted to a Tree.
template <class T = Tree>
T gather(const T& value) {
    return dist::gather(*current_process_group(), value);
}
template <class T = Tree>
T gather_object(const T& object) {
    return dist::gather_object(*current_process_group(), object);
}
template <class T = Tree>
T reduce(const T& value, std::string_view reduction = "mean", double scale = 1) {
    return dist::reduce(*current_process_group(), value, reduction, scale);
}
template <class T = Tree>
T broadcast(const T& value, int from_process = 0) {
    return dist::broadcast(*current_process_group(), value, from_process);
}
template <class T>
T& broadcast_object_list(T& objects, int from_process = 0) {
    return dist::broadcast_object_list(*current_process_group(), objects, from_process);
}
template <class T = Tree>
T pad_across_processes(const T& value, std::int64_t dim = 0, double pad_index = 0,
                       bool pad_first = false) {
    return dist::pad_across_processes(*current_process_group(), value, dim, pad_index, pad_first);
}
// Copies a tensor to the devices of all processes and returns the copy. Exactly one process must
// pass a tensor (else ValueError); the other processes pass nullopt.
Tensor copy_tensor_to_devices(const std::optional<Tensor>& tensor);

}  // namespace axle::accel
