// Private to kernels: offsets of image planes [h, w], which are numbered in row-major order of the
// leading dimensions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/walk.cuh"
#include "kernels/view.h"

namespace axle::kernels {

// Division by a fixed number, n / divisor for any n >= 0. It is computed as a multiplication if n
// and divisor are below 2^31.
struct Split {
    std::int64_t divisor = 1;
    Divider by;

    Split() = default;
    explicit Split(std::int64_t d) : divisor(d), by((d >> 31) == 0 ? Divider(d) : Divider()) {}
    AXLE_HOST_DEVICE std::int64_t quotient(std::int64_t n) const {
        if (((n | divisor) >> 31) == 0) return by.quotient(static_cast<std::uint32_t>(n));
        return n / divisor;
    }
};

// The planes of a view with at least two dimensions, passed to kernels by value.
class DevicePlanes {
  public:
    explicit DevicePlanes(const ConstView& v) {
        // The merged dimension that will be stored at index ndim_.
        std::int64_t size = 1, stride = 0;
        for (int d = v.ndim - 3; d >= 0; --d) {
            count_ *= v.shape[d];
            if (v.shape[d] == 1) continue;
            if (size != 1 && v.stride[d] == stride * size) {
                size *= v.shape[d];
                continue;
            }
            if (size != 1) add_dimension(size, stride);
            size = v.shape[d], stride = v.stride[d];
        }
        add_dimension(size, stride);
    }

    std::int64_t count() const { return count_; }
    // Returns the offset of a plane from the start of the view, in elements.
    AXLE_HOST_DEVICE std::int64_t offset(std::int64_t plane) const {
        std::int64_t at = 0;
        for (int d = 0; d + 1 < ndim_; ++d) {
            const std::int64_t rest = by_[d].quotient(plane);
            at += (plane - rest * by_[d].divisor) * stride_[d];
            plane = rest;
        }
        return at + plane * stride_[ndim_ - 1];
    }

  private:
    // Adds a dimension. Dimensions must be added from the innermost to the outermost.
    void add_dimension(std::int64_t size, std::int64_t stride) {
        by_[ndim_] = Split(std::max<std::int64_t>(size, 1));
        stride_[ndim_++] = stride;
    }

    std::int64_t count_ = 1;
    int ndim_ = 0;
    Split by_[kMaxDims - 1];
    std::int64_t stride_[kMaxDims - 1] = {};
};

// The elements [h, w] of a view's planes.
template <class T>
struct ImagePlanes {
    const T* data;
    DevicePlanes planes;
    std::int64_t step_h, step_w;

    explicit ImagePlanes(const ConstView& v)
        : data(v.as<T>()), planes(v), step_h(v.back_stride(2)), step_w(v.back_stride(1)) {}
    __device__ const T* plane(std::int64_t i) const { return data + planes.offset(i); }
};

// Maps number n to an element of contiguous planes [h, w].
struct PlaneIndex {
    Split by_h, by_w;

    PlaneIndex(std::int64_t h, std::int64_t w) : by_h(h), by_w(w) {}
    struct Place {
        std::int64_t plane, h, w;
    };
    AXLE_HOST_DEVICE Place operator()(std::int64_t n) const {
        const std::int64_t row = by_w.quotient(n), plane = by_h.quotient(row);
        return {plane, row - plane * by_h.divisor, n - row * by_w.divisor};
    }
};

}  // namespace axle::kernels
