// Rotary embedding. The cosine and sine of every (position, pair) are computed once per call, in
// f64, and rounded. This table is small, with D / 2 pairs per position, and each entry is used by
// batches * heads rows. Then x is read once and y is written once, in packs of 16 bytes if rows are
// dense; the table is read from the cache.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/cuda/walk.cuh"
#include "kernels/ops/rotary.h"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;

template <class C>
__global__ void fill_table(double base, std::int64_t offset, int direction, std::int64_t n,
                           std::int64_t half, C* cosine, C* sine) {
    for (std::int64_t i = thread_in_grid(); i < n; i += threads_in_grid()) {
        const std::int64_t position = i / half, pair = i - position * half;
        const double frequency = pow(base, -static_cast<double>(pair) / static_cast<double>(half));
        const double angle = static_cast<double>(offset + position) * (direction * frequency);
        cosine[i] = static_cast<C>(cos(angle));
        sine[i] = static_cast<C>(sin(angle));
    }
}

// The distance between the two halves of a row of y and of x, in elements.
struct Halves {
    std::int64_t y, x;
};

// Rotates kN pairs per step. `walk` is over the lower halves of y and of x, and over the table.
template <class T, int kN>
__global__ void __launch_bounds__(kThreads)
    rotate(DeviceWalk<3> walk, Halves to_upper, const T* x, const Compute<T>* cosine,
           const Compute<T>* sine, T* y) {
    using C = Compute<T>;
    const auto step = static_cast<std::uint64_t>(threads_in_grid());
    for (auto i = static_cast<std::uint64_t>(thread_in_grid()); i < walk.numel; i += step) {
        const auto place = walk.place(static_cast<std::uint32_t>(i));
        const T* const from = x + place.at[1];
        const Pack<T, kN> low = load_pack<T, kN>(from);
        const Pack<T, kN> high = load_pack<T, kN>(from + to_upper.x);
        constexpr int kTable = kN < kPack<C> ? kN : kPack<C>;
        C c[kN], s[kN];
#pragma unroll
        for (int j = 0; j < kN; j += kTable) {
            const auto cosines = load_pack<C, kTable>(cosine + place.at[2] + j);
            const auto sines = load_pack<C, kTable>(sine + place.at[2] + j);
#pragma unroll
            for (int k = 0; k < kTable; ++k) c[j + k] = cosines.at[k], s[j + k] = sines.at[k];
        }
        Pack<T, kN> low_to, high_to;
#pragma unroll
        for (int j = 0; j < kN; ++j) {
            const C a = static_cast<C>(low.at[j]), b = static_cast<C>(high.at[j]);
            low_to.at[j] = convert<T>(a * c[j] - b * s[j]);
            high_to.at[j] = convert<T>(b * c[j] + a * s[j]);
        }
        T* const to = y + place.at[0];
        store_pack(to, low_to);
        store_pack(to + to_upper.y, high_to);
    }
}

}  // namespace

void rotary(Cuda& on, double base, std::int64_t offset, int direction, ConstView x, View y) {
    if (x.numel() == 0) return;
    const std::int64_t positions = x.back(2), half = x.back(1) / 2, entries = positions * half;
    const Halves to_upper{half * y.back_stride(1), half * x.back_stride(1)};
    ConstView low_x = x, table = x;
    View low_y = y;
    low_x.shape[x.ndim - 1] = low_y.shape[x.ndim - 1] = table.shape[x.ndim - 1] = half;
    for (int d = 0; d < x.ndim; ++d) table.stride[d] = 0;
    table.stride[x.ndim - 1] = 1, table.stride[x.ndim - 2] = half;
    const Walk<3> walk({low_y, low_x, table});
    DeviceScratch scratch(on);
    visit_float(x.dtype, [&]<class T>() {
        using C = Compute<T>;
        C* const cosine = scratch.take<C>(entries);
        C* const sine = scratch.take<C>(entries);
        start(on, {grid_for(on, entries, kThreads), kThreads}, &fill_table<C>, base, offset,
              direction, entries, half, cosine, sine);
        const auto rotate_by = [&]<int kN>() {
            for_each_slab(
                walk,
                [&](const DeviceWalk<3>& slab) {
                    const auto steps = in_packs(slab, kN);
                    start(on, {grid_for(on, steps.numel, kThreads), kThreads}, &rotate<T, kN>,
                          steps, to_upper, x.as<T>(), cosine, sine, y.as<T>());
                },
                kMaxInPacks);
        };
        constexpr int kN = kPack<T>;
        bool dense = half % kN == 0 && steps_by_packs(walk, kN) && packs<T>(x.data, to_upper.x) &&
                     packs<T>(y.data, to_upper.y);
        for (int k = 0; k < 3; ++k) dense &= walk.stride(k) == 1;
        if (dense)
            rotate_by.template operator()<kN>();
        else
            rotate_by.template operator()<1>();
    });
}

}  // namespace axle::kernels
