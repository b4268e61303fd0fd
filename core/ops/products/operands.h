// Private to core: checks and conversions of the operands of products.
#pragma once

#include <utility>

#include "core/autograd/autocast.h"
#include "core/check.h"
#include "core/ops.h"

namespace axle {

// Throws DTypeError unless a and b have one dtype, which matmul() supports. The message calls them
// a_name and b_name.
inline void check_factors(const char* op, const Tensor& a, const Tensor& b,
                          const char* a_name = "a", const char* b_name = "b") {
    check_compute(op, a, a_name);
    check_same_dtype(op, a, b, a_name, b_name);
    if (a.dtype() == boolean)
        throw DTypeError(str(op, ": not supported for booleans; convert them to an integer dtype"));
}

// Returns the operands, converted to their common dtype under autocast. Used for products that
// autocast does not run in low precision.
inline std::pair<Tensor, Tensor> widest_under_autocast(const Tensor& a, const Tensor& b) {
    if (!autocast_dtype()) return {a, b};
    const DType common = promote(a, b);
    return {to(a, common), to(b, common)};
}

}  // namespace axle
