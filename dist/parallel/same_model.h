// Private to dist: checks that all ranks have the same model.
#pragma once

#include "dist/group/process_group.h"
#include "nn/module.h"

namespace axle::dist {

// Returns a list of lines with the name, dtype and shape of each tensor of the model. A line ends
// with "frozen" if the tensor does not require a gradient.
Tree describe(const nn::Module& model);

// Throws CommError on every rank if the lines of a rank differ from the lines of rank 0. The
// message contains the first line that differs, begins with `op`, and calls the described objects
// `what`.
void check_same_on_ranks(const char* op, const char* what, const Tree& lines, ProcessGroup& group);

}  // namespace axle::dist
