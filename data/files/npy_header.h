// Private to data: the header of an .npy file: a Python dict in text.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/shape.h"

namespace axle::inline v0::data {

struct NpyHeader {
    DType dtype = DType::f32;
    bool big_endian = false;
    bool fortran_order = false;
    Shape shape;
    std::size_t bytes = 0;  // where the elements start
};

// From the first bytes of a file. FileError with the offset.
NpyHeader read_npy_header(std::span<const std::byte> bytes, const std::string& name);

// That of a C-ordered, little-endian array. DTypeError for a dtype that NumPy lacks.
std::string write_npy_header(DType dtype, const Shape& shape);

}  // namespace axle::inline v0::data
