// Private to kernels: computes y[i] = f(a[i], b[i], ...) for operands of any strides.
//
// If the innermost dimension of every operand is contiguous (or has stride 0, except in the result)
// and aligned, elements are read and written in packs of up to 16 bytes. Examples are contiguous
// memory, rows of a larger tensor, and a broadcast bias. Otherwise, elements are processed one by
// one, in the memory order of the result. Computing an offset costs a few multiplications per
// dimension and no division.
#pragma once

#include <array>
#include <tuple>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/cuda/walk.cuh"

namespace axle::kernels {

inline constexpr int kElementwiseThreads = 256;

// The number of elements that the widest operand has in 16 bytes.
template <class... T>
inline constexpr int kCommonPack = 16 / static_cast<int>(std::max({sizeof(T)...}));

template <class T, int kN>
__device__ inline Pack<T, kN> load_or_repeat(const T* p, bool repeat) {
    if (!repeat) return load_pack<T, kN>(p);
    Pack<T, kN> pack;
    const T one = *p;
#pragma unroll
    for (int j = 0; j < kN; ++j) pack.at[j] = one;
    return pack;
}

// Computes f for all elements. `walk` counts packs. If bit k of `repeats` is set, operand k has one
// element per pack. `rest` is the number of elements after the last pack of a one-dimensional walk.
template <class F, class Y, class... In>
__global__ void elementwise_packs(F f, DeviceWalk<1 + sizeof...(In)> walk, unsigned repeats,
                                  int rest, Y* y, const In*... in) {
    constexpr int kN = kCommonPack<Y, In...>;
    const auto run = [&]<std::size_t... k>(std::index_sequence<k...>) {
        const auto step = static_cast<std::uint64_t>(threads_in_grid());
        for (auto i = static_cast<std::uint64_t>(thread_in_grid()); i < walk.numel; i += step) {
            const auto place = walk.place(static_cast<std::uint32_t>(i));
            [[maybe_unused]] const std::tuple<Pack<In, kN>...> x(
                load_or_repeat<In, kN>(in + place.at[k + 1], (repeats >> (k + 1) & 1) != 0)...);
            Pack<Y, kN> result;
#pragma unroll
            for (int j = 0; j < kN; ++j) result.at[j] = f(std::get<k>(x).at[j]...);
            store_pack(y + place.at[0], result);
        }
        if (const auto j = thread_in_grid(); j < rest) {
            const auto place = walk.place(walk.numel);
            y[place.at[0] + j] =
                f(in[place.at[k + 1] + ((repeats >> (k + 1) & 1) != 0 ? 0 : j)]...);
        }
    };
    run(std::index_sequence_for<In...>());
}

template <class F, class Y, class... In, std::size_t... k>
__device__ inline Y elementwise_at(const F& f, const std::int64_t* at, std::index_sequence<k...>,
                                   const In*... in) {
    return f(in[at[k + 1]]...);
}

template <class F, class Y, class... In>
__global__ void elementwise_strided(F f, DeviceWalk<1 + sizeof...(In)> walk, Y* y,
                                    const In*... in) {
    const auto step = static_cast<std::uint64_t>(threads_in_grid());
    for (auto i = static_cast<std::uint64_t>(thread_in_grid()); i < walk.numel; i += step) {
        const auto place = walk.place(static_cast<std::uint32_t>(i));
        y[place.at[0]] =
            elementwise_at<F, Y, In...>(f, place.at, std::index_sequence_for<In...>(), in...);
    }
}

// The functions that launch the kernels of one formula f for one choice of element types. The
// element types are not part of the types of these functions, so that elementwise_views() is
// compiled once for each number of operands.
template <int kOperands>
struct ElementwiseLaunches {
    int pack;       // elements in a pack
    const void* f;  // the function
    void (*packs)(Cuda& on, const void* f, const DeviceWalk<kOperands>& walk, unsigned repeats,
                  int rest, void* const* data);
    void (*strided)(Cuda& on, const void* f, const DeviceWalk<kOperands>& walk, void* const* data);
};

// Launches the kernels for views of the result and the operands. data[0] is the result.
template <int kOperands>
void elementwise_views(Cuda& on, const Walk<kOperands>& walk, void* const* data,
                       const ElementwiseLaunches<kOperands>& launches) {
    if (walk.rows() == 0) return;
    bool by_packs = steps_by_packs(walk, launches.pack);
    unsigned repeats = 0;
    for (int k = 0; k < kOperands; ++k) {
        if (walk.stride(k) == 0) repeats |= 1u << k;
        by_packs &= walk.stride(k) == 0 ? k > 0 : packs<char>(data[k]);
    }
    if (!by_packs)
        return for_each_slab(walk, [&](const DeviceWalk<kOperands>& slab) {
            launches.strided(on, launches.f, slab, data);
        });
    for_each_slab(
        walk,
        [&](const DeviceWalk<kOperands>& slab) {
            const auto rest = static_cast<int>(slab.size[slab.ndim - 1] %
                                               static_cast<std::uint32_t>(launches.pack));
            launches.packs(on, launches.f, in_packs(slab, launches.pack), repeats, rest, data);
        },
        kMaxInPacks);
}

template <class F, class Y, class... In>
struct ElementwiseKernels {
    static constexpr int kOperands = 1 + static_cast<int>(sizeof...(In));

    template <std::size_t... k>
    static void packs(Cuda& on, const F& f, const DeviceWalk<kOperands>& walk, unsigned repeats,
                      int rest, void* const* data, std::index_sequence<k...>) {
        const Grid grid = grid_for(on, walk.numel, kElementwiseThreads);
        start(on, {grid, kElementwiseThreads}, &elementwise_packs<F, Y, In...>, f, walk, repeats,
              rest, static_cast<Y*>(data[0]), static_cast<const In*>(data[k + 1])...);
    }
    template <std::size_t... k>
    static void strided(Cuda& on, const F& f, const DeviceWalk<kOperands>& walk, void* const* data,
                        std::index_sequence<k...>) {
        const Grid grid = grid_for(on, walk.numel, kElementwiseThreads);
        start(on, {grid, kElementwiseThreads}, &elementwise_strided<F, Y, In...>, f, walk,
              static_cast<Y*>(data[0]), static_cast<const In*>(data[k + 1])...);
    }
    static ElementwiseLaunches<kOperands> launches(const F& f) {
        return {kCommonPack<Y, In...>, &f,
                [](Cuda& on, const void* function, const DeviceWalk<kOperands>& walk,
                   unsigned repeats, int rest, void* const* data) {
                    packs(on, *static_cast<const F*>(function), walk, repeats, rest, data,
                          std::index_sequence_for<In...>());
                },
                [](Cuda& on, const void* function, const DeviceWalk<kOperands>& walk,
                   void* const* data) {
                    strided(on, *static_cast<const F*>(function), walk, data,
                            std::index_sequence_for<In...>());
                }};
    }
};

// Computes y[i] = f(a[i], b[i], ...). f is copied to the GPU and called as Y f(In...). The views
// have y's shape. Their elements have the sizes of Y and In..., but can have other dtypes. y can be
// one of the operands, with the same strides.
template <class Y, class... In, class F, class... Views>
void elementwise(Cuda& on, F f, View y, const Views&... in) {
    static_assert(sizeof...(In) == sizeof...(Views));
    constexpr int kOperands = 1 + static_cast<int>(sizeof...(In));
    void* const data[] = {y.data, const_cast<void*>(static_cast<const void*>(in.data))...};
    elementwise_views<kOperands>(on, Walk<kOperands>({ConstView(y), in...}), data,
                                 ElementwiseKernels<F, Y, In...>::launches(f));
}

}  // namespace axle::kernels
