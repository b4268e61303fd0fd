// Private to kernels: helpers shared by the passes of batch norm and group norm.
//
// A plane is the elements of one sample and channel. Plane k belongs to channel k % C. The index of
// its statistics is k % C in batch norm, and k / (C / groups) in group norm.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/cuda/norm/norm.cuh"
#include "kernels/cuda/reduce/reduce.cuh"
#include "kernels/ops/channel_norm.h"

namespace axle::kernels {

// The dimensions of a row-major x [N, C, ...].
struct Planes {
    std::int64_t batch, channels, size;  // N, C and the number of elements in a plane
    std::int64_t width;  // number of adjacent planes that share statistics, or 0 for batch norm
    Divider by_channels, by_width;

    Planes(const ConstView& x, std::int64_t groups)
        : batch(x.shape[0]),
          channels(x.shape[1]),
          size(x.numel() / (batch * channels)),
          width(groups == 0 ? 0 : channels / groups),
          by_channels(channels),
          by_width(std::max<std::int64_t>(1, width)) {}

    std::int64_t count() const { return batch * channels; }
    __device__ std::int64_t channel(std::uint32_t plane) const {
        return plane - std::int64_t{by_channels.quotient(plane)} * channels;
    }
    __device__ std::int64_t statistic(std::uint32_t plane) const {
        return width == 0 ? channel(plane) : std::int64_t{by_width.quotient(plane)};
    }
};

// Returns a row-major view of data with the given dtype and shape.
inline View dense_view(const void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
    View v;
    v.data = const_cast<void*>(data), v.dtype = dtype;
    for (const std::int64_t n : shape) v.shape[v.ndim++] = n;
    return dense_like(v, v.data, dtype);
}

inline constexpr int kPlaneThreads = 256;

// Calls f.template at<kN>(element, plane) for `units` packs of kN elements, beginning with the
// first pack of plane first_plane. The size of a plane must be a multiple of kN.
template <int kN, class F>
__device__ inline void for_each_pack(const F& f, std::uint32_t units, Divider by_plane,
                                     std::int64_t first_plane, std::int64_t plane_size) {
    const auto step = static_cast<std::uint64_t>(threads_in_grid());
    for (auto i = static_cast<std::uint64_t>(thread_in_grid()); i < units; i += step) {
        const std::uint32_t plane = by_plane.quotient(static_cast<std::uint32_t>(i));
        f.template at<kN>(first_plane * plane_size + static_cast<std::int64_t>(i) * kN,
                          static_cast<std::uint32_t>(first_plane + plane));
    }
}

template <class T, class F>
__global__ void __launch_bounds__(kPlaneThreads)
    on_planes(F f, std::uint32_t units, Divider by_plane, std::int64_t first_plane, bool packed) {
    if (packed)
        for_each_pack<kPack<T>>(f, units, by_plane, first_plane, f.planes.size);
    else
        for_each_pack<1>(f, units, by_plane, first_plane, f.planes.size);
}

// Starts a kernel that calls f.template at<kN>(element, plane) for all elements. kN is the pack
// size if `aligned` is true and the size of a plane is a multiple of the pack size. Otherwise kN is
// 1. `aligned` means that all operands are aligned to 16 bytes.
template <class T, class F>
void start_on_planes(Cuda& on, const F& f, bool aligned) {
    const Planes& planes = f.planes;
    const bool packed = aligned && planes.size % kPack<T> == 0;
    const std::int64_t each = packed ? planes.size / kPack<T> : planes.size;
    const std::int64_t most =
        std::max<std::int64_t>(1, std::numeric_limits<std::int32_t>::max() / each);
    for (std::int64_t first = 0; first < planes.count(); first += most) {
        const std::int64_t units = std::min(most, planes.count() - first) * each;
        start(on, {grid_for(on, units, kPlaneThreads, 4), kPlaneThreads}, &on_planes<T, F>, f,
              static_cast<std::uint32_t>(units), Divider(each), first, packed);
    }
}

// Returns the element of a channel in v, or `otherwise` if v has no data.
template <class C>
__device__ inline C channel_value(const NormVector& v, std::int64_t channel, C otherwise) {
    return v.data == nullptr ? otherwise : load_as<C>(v.data, v.dtype, channel * v.stride);
}

}  // namespace axle::kernels
