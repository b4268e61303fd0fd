// Private to core: the checks of pooling over one to three spatial dimensions.
#pragma once

#include "core/size2.h"
#include "core/spatial.h"
#include "core/tensor.h"

namespace axle {

// The windows of a pooling op, with one number for each spatial dimension.
struct PoolSizes {
    Dims kernel, stride, padding, dilation;
    bool ceil_mode = false;
    bool integers = false;  // whether x can be i64, i32 or u8
};

// Throws DTypeError unless x is floating (or i64, i32 or u8, if `integers` is true). Throws
// ShapeError unless x has `spatial` spatial dimensions after C or N, C, or if one of them or C is
// empty. Also throws the errors of check_device().
void check_pool_input(const char* op, const Tensor& x, int spatial, bool integers = false);
// Throws ValueError unless all sizes are positive and below 2^31. `name`, such as "the kernel", is
// used in the message.
void check_pool_size(const char* op, const char* name, const Dims& sizes);
// Checks x and the sizes and returns the spatial sizes of the result. Throws the errors that
// core/functional.h documents.
Dims pooled_size(const char* op, const Tensor& x, const PoolSizes& sizes);

inline Dims dims_of(const Size2& size) { return {size.h, size.w}; }
inline Dims dims_of(const Size3& size) { return {size.d, size.h, size.w}; }

}  // namespace axle
