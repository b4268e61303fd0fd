// Tensors in files, for data that is larger than the memory.
#pragma once

#include <string>

#include "core/tensor.h"

namespace axle {

// Returns a CPU tensor filled with zeros, whose memory is mapped from a temporary file in `folder`.
// The system writes pages to the disk and reads them when needed. The file has no name; its space
// is reserved now and freed with the tensor, also if the process is killed. Throws ShapeError for
// an invalid shape, and FileError if the file cannot be created or mapped, for example because the
// folder does not exist or its disk is full.
Tensor zeros_in_file(const std::string& folder, const Shape& shape, DType dtype);

}  // namespace axle
