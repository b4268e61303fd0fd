// Private to core: the shapes of reductions, and conversions of their operands.
#pragma once

#include "core/ops.h"

namespace axle {

// The shapes of a reduction. `kept` has size 1 in the reduced dimensions. `result` equals `kept`
// with keepdim, and otherwise does not contain the reduced dimensions.
struct Reduced {
    Dims dims;  // the reduced dimensions, in ascending order
    Shape kept, result;
    std::int64_t n = 1;  // number of elements per result
};
// Returns the shapes of a reduction of x over dims (empty: all). Throws the errors of
// check_device() and check_compute(). Also throws IndexError for a dimension out of range, and
// ValueError for a dimension that is listed twice. Defined in reduce.cpp.
Reduced reduced(const char* op, const Tensor& x, const Dims& dims, bool keepdim);
// Throws ValueError if the reduced dimensions are empty and the result is not.
void check_not_empty(const char* op, const Tensor& x, const Reduced& r);

// Returns the square root of x, a sum of squares. Its gradient is 0 where x is 0. Defined in
// norms.cpp.
Tensor root_of_squares(const Tensor& x);

// Returns x in f32 if it is half precision, else x. Compositions compute in this dtype and convert
// the result back, so that it is rounded once.
inline Tensor widened(const Tensor& x) { return is_half(x.dtype()) ? to(x, f32) : x; }

// Returns x with at least one dimension.
inline Tensor with_a_dimension(const Tensor& x) { return x.dim() == 0 ? reshape(x, {1}) : x; }

}  // namespace axle
