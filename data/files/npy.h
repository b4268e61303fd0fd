// Reads and writes NumPy's .npy files.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/tensor.h"

namespace axle::data {

// Returns the array as a contiguous tensor. Supports format versions 1 to 3, little and big endian,
// C and Fortran order, and up to 8 dimensions. Supported dtypes are bool, integers, float16 to
// float64 and complex64. Throws FileError with byte offset and reason if the dtype is not supported
// (such as pickled objects), the file is truncated or has trailing bytes, or NumPy would not write
// such a header. The file must not be truncated while it is read (MappedFile).
Tensor load_npy(const std::string& path);

// Parses the contents of an .npy file. Error messages use `name` as the path.
Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name);

// Writes the file atomically. The bytes are the same as those that numpy.save writes for a
// C-ordered array. Throws DTypeError for bfloat16 and float8, which NumPy does not support.
void save_npy(const std::string& path, const Tensor& tensor);

}  // namespace axle::data
