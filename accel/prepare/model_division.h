// Private to accel: decides how prepare() divides models and their experts among processes (tensor
// and expert parallel training), based on the mesh of an Accelerator.
#pragma once

#include <memory>

#include "accel/config/options.h"
#include "accel/prepare/preparation.h"

namespace axle::accel {

// Returns the processes over which gradients are averaged. They differ from this process only in
// dimensions of the mesh other than "tp" and "pp". Returns nullptr, which means all processes, if
// `mesh` is nullptr or has neither of these two dimensions. All processes must call this function.
std::shared_ptr<dist::ProcessGroup> data_group_of(const dist::DeviceMesh* mesh);

// Sets the options of `preparation` that decide how models are divided, and over which processes
// gradients are averaged. The mesh in preparation.loading must be set. All processes must call this
// function. Throws NotImplementedError for tensor parallel training with DeepSpeed. The division of
// a model then throws ValueError if the model already has slices, but not tp_size slices.
void set_division(PreparationOptions& preparation, const AcceleratorOptions& options);

}  // namespace axle::accel
