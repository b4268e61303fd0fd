// An optimizer's state in one safetensors file that PyTorch users read and write in a few lines
// (docs/interchange.md):
//
//     tensors   "state.<parameter>.<name>" as in "state.0.exp_avg", parameters numbered through all
//               groups
//     metadata  "param_groups": the list of groups in JSON, each with "params", as in PyTorch's
//               optimizer.state_dict()
#pragma once

#include <string>

#include "optim/optimizer.h"

namespace axle::inline v0::optim {

// Writes optimizer.state_dict() atomically (core/files/file.h).
void save_state(const std::string& path, Optimizer& optimizer);
// Optimizer::load_state_dict of such a file. FileError for what isn't one and for what doesn't fit
// the optimizer; then the optimizer is what it was.
void load_state(const std::string& path, Optimizer& optimizer);

}  // namespace axle::inline v0::optim
