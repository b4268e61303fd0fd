// Gather and scatter. Gather reads the index and one element of x for each element of y. Slices
// that are selected by one index are copied in packs of 16 bytes. Scatter has two implementations.
// In the ordered implementation, a thread processes a line along the dimension from its first index
// to its last. So sums have a fixed order. If there are few lines, each line is split into ranges
// of targets, and the indices are read once per range. In the atomic implementation, which only
// sums have, each element is added once, in any order. For an index that is out of range, gather
// writes 0 and scatter does nothing; check_index() reports it.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/error_reporter.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/cuda/walk.cuh"
#include "kernels/ops/index.h"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;

// --- check

// The layout of an index tensor. Each index has an offset in memory, computed with `stride`, and a
// position in row-major order, computed with `weight`.
struct Indices {
    int ndim = 0;
    std::int64_t numel = 1;
    std::int64_t shape[kMaxDims] = {}, stride[kMaxDims] = {}, weight[kMaxDims] = {};

    explicit Indices(const ConstView& index) {
        std::int64_t weight_here = 1;
        for (int d = index.ndim - 1; d >= 0; --d) {
            // Broadcast dimensions are visited once. The visited copy of an index is the first one
            // in row-major order.
            const std::int64_t size =
                index.stride[d] == 0 ? std::min<std::int64_t>(1, index.shape[d]) : index.shape[d];
            numel *= size;
            // Dimensions are stored from the innermost to the outermost, and merged if they are
            // contiguous.
            const bool together = ndim > 0 &&
                                  stride[ndim - 1] * shape[ndim - 1] == index.stride[d] &&
                                  weight[ndim - 1] * shape[ndim - 1] == weight_here;
            if (size != 1 && together) shape[ndim - 1] *= size;
            if (size != 1 && !together) {
                shape[ndim] = size, stride[ndim] = index.stride[d], weight[ndim] = weight_here;
                ++ndim;
            }
            weight_here *= index.shape[d];
        }
    }
};

template <class Index>
__global__ void check_kernel(Indices indices, const Index* index, std::int64_t size,
                             ErrorReporter report) {
    for (std::int64_t i = thread_in_grid(); i < indices.numel; i += threads_in_grid()) {
        std::int64_t offset = 0, position = 0, rest = i;
        for (int d = 0; d < indices.ndim; ++d) {
            const bool last = d + 1 == indices.ndim;
            const std::int64_t next = last ? 0 : rest / indices.shape[d];
            const std::int64_t here = rest - next * indices.shape[d];
            offset += here * indices.stride[d];
            position += here * indices.weight[d];
            rest = next;
        }
        const std::int64_t value = index[offset];
        if (value < 0 || value >= size) report(position, value, size);
    }
}

// --- gather

// A walk over y, x (at index 0 along the dimension) and the index. `step` is the stride of x along
// the dimension.
struct GatherWalk {
    DeviceWalk<3> walk;
    std::int64_t step, size;
};

template <class Bits, class Index>
__global__ void gather_elements(GatherWalk g, const Bits* __restrict__ x,
                                const Index* __restrict__ index, Bits* __restrict__ y) {
    const auto step = static_cast<std::uint64_t>(threads_in_grid());
    for (auto i = static_cast<std::uint64_t>(thread_in_grid()); i < g.walk.numel; i += step) {
        const auto place = g.walk.place(static_cast<std::uint32_t>(i));
        const std::int64_t from = index[place.at[2]];
        const bool exists = from >= 0 && from < g.size;
        y[place.at[0]] = exists ? x[place.at[1] + from * g.step] : Bits(0);
    }
}

// Gathers 16 bytes per step. The strides of x and y, and g.step, are in bytes.
template <class Index>
__global__ void gather_packs(GatherWalk g, const char* __restrict__ x,
                             const Index* __restrict__ index, char* __restrict__ y) {
    const auto step = static_cast<std::uint64_t>(threads_in_grid());
    for (auto i = static_cast<std::uint64_t>(thread_in_grid()); i < g.walk.numel; i += step) {
        const auto place = g.walk.place(static_cast<std::uint32_t>(i));
        const std::int64_t from = index[place.at[2]];
        Pack<char> pack = {};
        if (from >= 0 && from < g.size) pack = load_pack(x + place.at[1] + from * g.step);
        store_pack(y + place.at[0], pack);
    }
}

// --- scatter

// The new value of a target, given its value and an element, with the same bits as the kernel on
// the CPU. For booleans, the sum and the maximum are "or", the product and the minimum are "and".
struct Sum {
    template <class T>
    __device__ T operator()(T a, T b) const {
        if constexpr (std::is_same_v<T, bool>)
            return a || b;
        else if constexpr (std::is_integral_v<T>)
            return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
        else
            return a + b;
    }
};
struct Product {
    template <class T>
    __device__ T operator()(T a, T b) const {
        if constexpr (std::is_same_v<T, bool>)
            return a && b;
        else if constexpr (std::is_integral_v<T>)
            return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
        else
            return a * b;
    }
};
struct Maximum {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a != a || a > b ? a : b;
    }
};
struct Minimum {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a != a || a < b ? a : b;
    }
};
struct Replacement {
    template <class T>
    __device__ T operator()(T /*a*/, T b) const {
        return b;
    }
};

// A line along the scattered dimension. It has `length` elements, and `size` targets that are split
// into `parts` ranges. y, index and src are the strides of the tensors along the line.
struct Line {
    std::int64_t length, size, parts;
    std::int64_t y, index, src;
};

constexpr int kAhead = 4;  // number of elements whose indices a thread loads ahead

template <class Op, class T, class Index>
__global__ void scatter_in_order(Op op, DeviceWalk<3> lines, Line line, const Index* index,
                                 const T* src, T* y) {
    const std::int64_t all = lines.numel * line.parts;
    for (std::int64_t t = thread_in_grid(); t < all; t += threads_in_grid()) {
        const std::int64_t part = t / lines.numel;
        const auto place = lines.place(static_cast<std::uint32_t>(t - part * lines.numel));
        const std::int64_t begin = line.size * part / line.parts;
        const std::int64_t end = line.size * (part + 1) / line.parts;
        T* const target = y + place.at[0];
        const Index* const ids = index + place.at[1];
        const T* const from = src + place.at[2];
        for (std::int64_t i = 0; i < line.length; i += kAhead) {
            std::int64_t id[kAhead];
            T value[kAhead] = {};
#pragma unroll
            for (int a = 0; a < kAhead; ++a)
                id[a] = i + a < line.length ? std::int64_t{ids[(i + a) * line.index]} : -1;
#pragma unroll
            for (int a = 0; a < kAhead; ++a)
                if (id[a] >= begin && id[a] < end) value[a] = from[(i + a) * line.src];
#pragma unroll
            for (int a = 0; a < kAhead; ++a)
                if (id[a] >= begin && id[a] < end) {
                    T& at = target[id[a] * line.y];
                    at = convert<T>(
                        op(static_cast<Compute<T>>(at), static_cast<Compute<T>>(value[a])));
                }
        }
    }
}

// True for types that scatter_add() can add atomically.
template <class T>
inline constexpr bool kHasAtomicAdd =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::int32_t> ||
    std::is_same_v<T, std::int64_t>;

template <class T>
__device__ inline void add_atomically(T* at, T x) {
    if constexpr (std::is_same_v<T, std::int64_t>)
        atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(x));
    else
        atomicAdd(at, x);
}

// Computes scatter_add() with atomics. `walk` is over src, the index, and y (at index 0 along the
// dimension).
template <class T, class Index>
__global__ void scatter_atomically(DeviceWalk<3> walk, std::int64_t y_step, std::int64_t size,
                                   const T* src, const Index* index, T* y) {
    const auto step = static_cast<std::uint64_t>(threads_in_grid());
    for (auto i = static_cast<std::uint64_t>(thread_in_grid()); i < walk.numel; i += step) {
        const auto place = walk.place(static_cast<std::uint32_t>(i));
        const std::int64_t to = index[place.at[1]];
        if (to >= 0 && to < size) add_atomically(y + place.at[2] + to * y_step, src[place.at[0]]);
    }
}

// Fewer than kFewLines lines are too few to fill a GPU. If they have at least kLongLine elements,
// scatter_add() adds the elements with atomics. If the call must be deterministic or the dtype has
// no atomic addition, and in scatter(), the targets of each line are split into ranges instead.
constexpr std::int64_t kFewLines = 4096, kLongLine = 512;

// The walks of scatter over src, the index, and y at index 0 along the dimension.
struct Scattering {
    Walk<3> elements;  // src, index, y
    Walk<3> lines;     // y, index, src, without the dimension
    Line line;
    bool few;  // whether there are few but long lines

    Scattering(int dim, const ConstView& index, const ConstView& src, const View& y)
        : elements({src, index, at_zero(index, y, dim)}),
          lines({without(at_zero(index, y, dim), dim), without(index, dim), without(src, dim)}),
          line{index.shape[dim], y.shape[dim],      1,
               y.stride[dim],    index.stride[dim], src.stride[dim]},
          few(lines.rows() * lines.width() < kFewLines && line.length >= kLongLine) {}

  private:
    static ConstView at_zero(ConstView index, const View& y, int dim) {
        for (int d = 0; d < y.ndim; ++d) index.stride[d] = d == dim ? 0 : y.stride[d];
        return index;
    }
    static ConstView without(ConstView x, int dim) {
        x.shape[dim] = 1;
        return x;
    }
};

template <class T, class Op>
void start_in_order(Cuda& on, Op op, const Scattering& s, const ConstView& index,
                    const ConstView& src, const View& y) {
    visit_index(index.dtype, [&]<class Index>() {
        for_each_slab(s.lines, [&](const DeviceWalk<3>& slab) {
            Line cut = s.line;
            if (s.few) cut.parts = std::min(cut.size, 16 * kFewLines / slab.numel);
            const std::int64_t threads = slab.numel * cut.parts;
            start(on, {grid_for(on, threads, kThreads), kThreads}, &scatter_in_order<Op, T, Index>,
                  op, slab, cut, index.as<Index>(), src.as<T>(), y.as<T>());
        });
    });
}

}  // namespace

void check_index(Cuda& on, ConstView index, std::int64_t size) {
    const Indices indices(index);
    if (indices.numel == 0) return;
    const ErrorReporter report(on, DeviceErrorRecord::bad_index);
    visit_index(index.dtype, [&]<class Index>() {
        start(on, {grid_for(on, indices.numel, kThreads), kThreads}, &check_kernel<Index>, indices,
              index.as<Index>(), size, report);
    });
}

void gather(Cuda& on, int dim, ConstView x, ConstView index, View y) {
    ConstView origin = y;  // x at index 0 along the dimension, in y's shape
    origin.data = x.data;
    for (int d = 0; d < y.ndim; ++d) origin.stride[d] = d == dim ? 0 : x.stride[d];
    const Walk<3> walk({y, origin, index});
    const std::int64_t step = x.stride[dim], size = x.shape[dim];
    const auto bytes = size_of(y.dtype);
    const int pack = static_cast<int>(16 / bytes);
    const bool slices = walk.stride(0) == 1 && walk.stride(1) == 1 && walk.stride(2) == 0 &&
                        walk.width() % pack == 0 && step % pack == 0 && packs<char>(x.data) &&
                        packs<char>(y.data) && steps_by_packs(walk, pack);
    visit_index(index.dtype, [&]<class Index>() {
        const auto* const ids = index.as<Index>();
        if (slices)
            return for_each_slab(
                walk,
                [&](const DeviceWalk<3>& slab) {
                    GatherWalk g{in_packs(slab, pack), step * bytes, size};
                    for (int k = 0; k < 2; ++k) {
                        g.walk.base[k] *= bytes;
                        for (std::int64_t& stride : g.walk.stride[k]) stride *= bytes;
                    }
                    start(on, {grid_for(on, g.walk.numel, kThreads), kThreads},
                          &gather_packs<Index>, g, x.as<char>(), ids, y.as<char>());
                },
                kMaxInPacks);
        visit_bits(y.dtype, [&]<class Bits>() {
            for_each_slab(walk, [&](const DeviceWalk<3>& slab) {
                start(on, {grid_for(on, slab.numel, kThreads), kThreads},
                      &gather_elements<Bits, Index>, GatherWalk{slab, step, size}, x.as<Bits>(),
                      ids, y.as<Bits>());
            });
        });
    });
}

void scatter_add(Cuda& on, int dim, ConstView index, ConstView src, View y) {
    const Scattering s(dim, index, src, y);
    if (s.elements.rows() == 0 || s.line.size == 0) return;
    visit_compute(y.dtype, [&]<class T>() {
        if constexpr (kHasAtomicAdd<T>)
            if (s.few && !on.deterministic)
                return visit_index(index.dtype, [&]<class Index>() {
                    for_each_slab(s.elements, [&](const DeviceWalk<3>& slab) {
                        start(on, {grid_for(on, slab.numel, kThreads), kThreads},
                              &scatter_atomically<T, Index>, slab, s.line.y, s.line.size,
                              src.as<T>(), index.as<Index>(), y.as<T>());
                    });
                });
        start_in_order<T>(on, Sum(), s, index, src, y);
    });
}

void scatter(Cuda& on, Scatter how, int dim, ConstView index, ConstView src, View y) {
    const Scattering s(dim, index, src, y);
    if (s.elements.rows() == 0 || s.line.size == 0) return;
    if (how == Scatter::replace)
        return visit_bits(y.dtype, [&]<class Bits>() {
            start_in_order<Bits>(on, Replacement(), s, index, src, y);
        });
    visit_compute(y.dtype, [&]<class T>() {
        if (how == Scatter::multiply) start_in_order<T>(on, Product(), s, index, src, y);
        if (how == Scatter::maximum) start_in_order<T>(on, Maximum(), s, index, src, y);
        if (how == Scatter::minimum) start_in_order<T>(on, Minimum(), s, index, src, y);
    });
}

}  // namespace axle::kernels
