// NumPy's .npy: one array in a file.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/tensor.h"

namespace axle::inline v0::data {

// The array as a contiguous tensor: format versions 1 to 3, little and big endian, C and Fortran
// order; bool, integers, float16 to float64, complex64; up to 8 dimensions. FileError with the
// offset and the reason for a file that is not whole, has bytes to spare, or has a header that
// NumPy wouldn't write; dtypes that Axle has no place for are refused by name, pickled objects
// among them. The file must not be truncated meanwhile (MappedFile).
Tensor load_npy(const std::string& path);

// The same from memory; `name` stands for the path in messages.
Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name);

// Writes the file, whole or not at all, byte for byte as numpy.save does with a C-ordered array.
// DTypeError for a dtype that NumPy lacks (bfloat16, float8).
void save_npy(const std::string& path, const Tensor& tensor);

}  // namespace axle::inline v0::data
