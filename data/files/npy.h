// Reads and writes NumPy's .npy files.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/tensor.h"

namespace axle::data {

// Returns the array as a contiguous tensor. Supports format versions 1 to 3, little and big endian,
// C and Fortran order; bool, integers, float16 to float64, complex64; up to 8 dimensions. Throws
// FileError with offset and reason if the file is truncated, has trailing bytes, or has a header
// that NumPy would not write. Unsupported dtypes, including pickled objects, are refused by name.
// The file must not be truncated while it is read (MappedFile).
Tensor load_npy(const std::string& path);

// Parses the contents of an .npy file. `name` is used as the path in messages.
Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name);

// Writes the file atomically, with the same bytes as numpy.save of a C-ordered array. Throws
// DTypeError for dtypes that NumPy lacks (bfloat16, float8).
void save_npy(const std::string& path, const Tensor& tensor);

}  // namespace axle::data
