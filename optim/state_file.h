// Saves and loads an optimizer's state as one safetensors file, which PyTorch users can read and
// write with a few lines of code (docs/interchange.md):
//
//     tensors   "state.<parameter>.<name>", such as "state.0.exp_avg"; parameters are numbered
//               across all groups. A number, such as "n_iter" of LBFGS, is a 0-d tensor (f64 or
//               i64). A list, such as "old_dirs" of LBFGS, is one tensor per element:
//               "state.0.old_dirs.0", "state.0.old_dirs.1", ...
//     metadata  "param_groups": the list of groups as JSON, each with "params", as in PyTorch's
//               optimizer.state_dict()
#pragma once

#include <string>

#include "optim/optimizer.h"

namespace axle::optim {

// Writes optimizer.state_dict() atomically (core/files/file.h). Throws FileError if writing fails.
void save_state(const std::string& path, Optimizer& optimizer);
// Loads a file of save_state() with Optimizer::load_state_dict. Throws FileError if the file is
// invalid or does not fit the optimizer; the optimizer is then unchanged.
void load_state(const std::string& path, Optimizer& optimizer);

}  // namespace axle::optim
