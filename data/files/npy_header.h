// Private to data: the header of an .npy file, which contains the text of a Python dict.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/shape.h"

namespace axle::data {

struct NpyHeader {
    DType dtype = DType::f32;
    bool big_endian = false;
    bool fortran_order = false;
    Shape shape;
    std::size_t bytes = 0;  // the offset of the elements in the file
};

// Reads the header from the contents of a file. Throws FileError with `name` as the path and the
// byte offset if the header is invalid.
NpyHeader read_npy_header(std::span<const std::byte> bytes, const std::string& name);

// Returns the header of a C-ordered, little-endian array. Throws DTypeError for dtypes that NumPy
// does not support.
std::string write_npy_header(DType dtype, const Shape& shape);

}  // namespace axle::data
