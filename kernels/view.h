// View and ConstView: the pointer, dtype, shape and strides of a tensor, which kernels get as
// arguments.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace axle {

inline constexpr int kMaxDims = 8;

// A strided view of memory that it does not own. Shape and strides are numbers of elements; a
// stride can be 0 (broadcast) or negative. A 0-d view has one element. Kernels do not check that
// all elements are inside the allocation.
template <class Pointer>
struct BasicView {
    Pointer data = nullptr;
    DType dtype = DType::f32;
    int ndim = 0;
    std::int64_t shape[kMaxDims] = {};
    std::int64_t stride[kMaxDims] = {};

    std::int64_t numel() const {
        std::int64_t n = 1;
        for (int d = 0; d < ndim; ++d) n *= shape[d];
        return n;
    }
    // Returns the size of a dimension counted from the end: back(1) is the size of the last
    // dimension.
    std::int64_t back(int d) const { return shape[ndim - d]; }
    std::int64_t back_stride(int d) const { return stride[ndim - d]; }
    // Returns whether elements are in row-major order without gaps. Strides of dimensions of size 1
    // are ignored; empty views are contiguous.
    bool contiguous() const {
        std::int64_t expected = 1;
        for (int d = ndim - 1; d >= 0; --d) {
            if (shape[d] == 0) return true;
            if (shape[d] != 1 && stride[d] != expected) return false;
            expected *= shape[d];
        }
        return true;
    }
};

struct View : BasicView<void*> {
    template <class T>
    T* as() const {
        return static_cast<T*>(data);
    }
};

struct ConstView : BasicView<const void*> {
    ConstView() = default;
    ConstView(const View& v)  // NOLINT(google-explicit-constructor): adding const is always safe
    {
        data = v.data, dtype = v.dtype, ndim = v.ndim;
        for (int d = 0; d < ndim; ++d) shape[d] = v.shape[d], stride[d] = v.stride[d];
    }
    template <class T>
    const T* as() const {
        return static_cast<const T*>(data);
    }
};

}  // namespace axle
