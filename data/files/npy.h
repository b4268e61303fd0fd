// Reads and writes NumPy's .npy files.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/tensor.h"

namespace axle::data {

// Reads an .npy file and returns its array as a contiguous tensor. Supports format versions 1 to 3,
// little and big endian, C and Fortran order, and up to 8 dimensions. Supported dtypes are bool,
// integers, float16 to float64 and complex64. Throws FileError if the file is missing. Throws
// FileError with the byte offset and the reason if the dtype is not supported (such as pickled
// objects), the file is truncated or has trailing bytes, the header is invalid, or a boolean is
// neither 0 nor 1. The file must not be truncated while it is read (MappedFile in
// core/files/file.h).
Tensor load_npy(const std::string& path);

// Parses the contents of an .npy file. Throws FileError for the same errors as load_npy(), with
// `name` as the path.
Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name);

// Writes a tensor to a file atomically. The bytes equal the output of numpy.save for a C-ordered
// array. The tensor can be on any device with memory. Throws UsageError if the tensor is undefined,
// DeviceError if it is on the meta device, DTypeError for bfloat16 and float8, which NumPy does not
// support, and FileError if the file cannot be written.
void save_npy(const std::string& path, const Tensor& tensor);

}  // namespace axle::data
