// Private to kernels: the two walks of a reduction.
//
// In the walk over rows, a team of threads computes one result. It reads the elements in memory
// order. It reads packs of 16 bytes if the innermost reduced dimension is contiguous, aligned, and
// a multiple of the pack size. The walk over columns is used if each result has more than one
// element, and the innermost kept dimension has at least 8 elements and a smaller stride than the
// innermost reduced dimension. A lane computes one result, or several adjacent results if they can
// be loaded as a pack. Other threads of the block process further elements of the same results.
//
// If there are few results, the reduced elements are split as well. Partial results are stored in
// scratch memory, and a second kernel combines them in a fixed order. Memory is read once. The
// partitioning depends on the shape, the strides and the alignment only.
//
// A reduction (Op) is a struct with these members:
//     Lane, Acc      the type that elements are converted to, and the type of the accumulator
//     kInputs        1 or 2 operands, which have the same shape and strides
//     start()        returns the result of no elements
//     take           adds kCount elements at position, position + step, ... of `result`:
//                    the elements of the first operand, then the elements of the second
//     join           combines two partial results; their order does not change the bits
//     write          stores a result
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/cuda/walk.cuh"
#include "kernels/rules/reduce_plan.h"

namespace axle::kernels {

inline constexpr int kReduceThreads = 256;
inline constexpr int kReduceAtOnce = 4;              // packs that a thread loads together
inline constexpr std::int64_t kReduceBlocks = 1024;  // number of blocks that keep a GPU busy

// Some dimensions of an operand, iterated in row-major order.
struct DeviceDims {
    int ndim = 0;
    bool small = true;  // whether there are fewer than 2^31 elements
    std::int64_t size[kMaxDims] = {};
    std::int64_t stride[kMaxDims] = {};
    Divider by[kMaxDims] = {};

    DeviceDims() = default;
    DeviceDims(int count, const std::int64_t* sizes, const std::int64_t* strides) : ndim(count) {
        std::int64_t n = 1;
        for (int d = 0; d < ndim; ++d) n *= size[d] = sizes[d], stride[d] = strides[d];
        small = n <= std::numeric_limits<std::int32_t>::max();
        for (int d = 0; d < ndim && small && n > 0; ++d) by[d] = Divider(size[d]);
    }
    // Returns one dimension of n contiguous elements.
    static DeviceDims line(std::int64_t n) {
        const std::int64_t one = 1;
        return {1, &n, &one};
    }
    __device__ std::int64_t place(std::int64_t i) const {
        std::int64_t at = 0;
#pragma unroll 1
        for (int d = ndim - 1; d > 0; --d) {
            const std::int64_t rest =
                small ? std::int64_t{by[d].quotient(static_cast<std::uint32_t>(i))} : i / size[d];
            at += (i - rest * size[d]) * stride[d];
            i = rest;
        }
        return ndim > 0 ? at + i * stride[0] : at;
    }
};

// The memory to which the results are written.
struct ReduceOutput {
    void* data;
    DType dtype;
    DeviceDims dims;

    ReduceOutput(const ReducePlan& plan, const View& y)
        : data(y.data), dtype(y.dtype), dims(plan.kept.count, plan.kept.size, plan.kept.y_stride) {}
    ReduceOutput(void* to, DType dtype_, std::int64_t n)
        : data(to), dtype(dtype_), dims(DeviceDims::line(n)) {}

    template <class V>
    __device__ void operator()(std::int64_t result, V value) const {
        const std::int64_t at = dims.place(result);
        switch (dtype) {
            case DType::i64:
                static_cast<std::int64_t*>(data)[at] = convert<std::int64_t>(value);
                break;
            case DType::i32:
                static_cast<std::int32_t*>(data)[at] = convert<std::int32_t>(value);
                break;
            case DType::u8:
            case DType::boolean:
                static_cast<std::uint8_t*>(data)[at] = convert<std::uint8_t>(value);
                break;
            default:
                store_as(data, dtype, at, value);
        }
    }
};

// The operands of a walk, and how the work is split. A unit is one element of the reduced
// dimensions or, in a packed walk over rows, one pack of elements. The units are split into
// `pieces` of `height` units.
struct ReduceSource {
    const void *x, *second;
    DeviceDims kept, reduced;  // `reduced` iterates over units
    std::int64_t results, units, height, pieces;
    bool packed;
    // The members below are used in the walk over columns only.
    std::int64_t width, stride,
        blocks;  // size and stride of the innermost kept dimension, and blocks along it
    int lanes;
};

// Adds the elements of kCount loads to the accumulator; each load has kN elements.
template <class Op, class T, int kCount, int kN>
__device__ inline void reduce_take(const Op& op, typename Op::Acc& acc,
                                   const Pack<T, kN> (&a)[kCount], const Pack<T, kN> (&b)[kCount],
                                   std::int64_t unit, std::int64_t step, std::int64_t result) {
    using L = typename Op::Lane;
    constexpr int kOuter = kN == 1 ? 1 : kCount, kInner = kN == 1 ? kCount : kN;
#pragma unroll
    for (int q = 0; q < kOuter; ++q) {
        L of_a[kInner], of_b[kInner];
#pragma unroll
        for (int j = 0; j < kInner; ++j) {
            const int k = kN == 1 ? j : q, e = kN == 1 ? 0 : j;
            of_a[j] = convert<L>(a[k].at[e]);
            if constexpr (Op::kInputs == 2) of_b[j] = convert<L>(b[k].at[e]);
        }
        const std::int64_t position = (unit + q * step) * kN;
        op.take(acc, of_a, of_b, position, kN == 1 ? step : 1, result);
    }
}

template <class Op, class T, int kCount, int kN>
__device__ inline void reduce_load(const Op& op, typename Op::Acc& acc, const ReduceSource& s,
                                   std::int64_t base, std::int64_t unit, std::int64_t step,
                                   std::int64_t result) {
    Pack<T, kN> a[kCount], b[kCount];
#pragma unroll
    for (int q = 0; q < kCount; ++q) {
        const std::int64_t at = base + s.reduced.place(unit + q * step);
        a[q] = load_pack<T, kN>(static_cast<const T*>(s.x) + at);
        if constexpr (Op::kInputs == 2)
            b[q] = load_pack<T, kN>(static_cast<const T*>(s.second) + at);
    }
    reduce_take(op, acc, a, b, unit, step, result);
}

template <class Op, class T, int kN>
__device__ inline void reduce_units(const Op& op, typename Op::Acc& acc, const ReduceSource& s,
                                    std::int64_t base, std::int64_t unit, std::int64_t end,
                                    std::int64_t step, std::int64_t result) {
#pragma unroll 1
    for (; unit + (kReduceAtOnce - 1) * step < end; unit += kReduceAtOnce * step)
        reduce_load<Op, T, kReduceAtOnce, kN>(op, acc, s, base, unit, step, result);
#pragma unroll 1
    for (; unit < end; unit += step)
        reduce_load<Op, T, 1, kN>(op, acc, s, base, unit, step, result);
}

template <class T, class Op>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_rows(Op op, ReduceSource s, int team_size, typename Op::Acc* partial) {
    using Acc = typename Op::Acc;
    const Team team(team_size);
    const std::int64_t result = thread_in_grid() / team_size;
    const bool mine = result < s.results;  // other threads only take part in combining
    const std::int64_t begin = blockIdx.y * s.height;
    const std::int64_t rest = s.units - begin;
    const std::int64_t end = mine ? begin + (rest < s.height ? rest : s.height) : begin;
    const std::int64_t base = s.kept.place(mine ? result : 0);
    Acc acc = op.start();
    if (s.packed)
        reduce_units<Op, T, kPack<T>>(op, acc, s, base, begin + team.rank, end, team.size, result);
    else
        reduce_units<Op, T, 1>(op, acc, s, base, begin + team.rank, end, team.size, result);
    acc = team.combine(acc, [&](const Acc& a, const Acc& b) { return op.join(a, b); });
    if (!mine || team.rank != 0) return;
    if (partial != nullptr)
        partial[result * s.pieces + blockIdx.y] = acc;
    else
        op.write(result, acc);
}

// The number of adjacent results per lane that are loaded as a pack.
template <class T>
inline constexpr int kReduceColumns = sizeof(T) == 8 ? 2 : 4;

template <class Op, class T, int kCount, int kN>
__device__ inline void reduce_lines(const Op& op, typename Op::Acc (&acc)[kN],
                                    const ReduceSource& s, std::int64_t base, std::int64_t line,
                                    std::int64_t step, std::int64_t result) {
    using L = typename Op::Lane;
    Pack<T, kN> a[kCount], b[kCount];
#pragma unroll
    for (int q = 0; q < kCount; ++q) {
        const std::int64_t at = base + s.reduced.place(line + q * step);
        a[q] = load_pack<T, kN>(static_cast<const T*>(s.x) + at);
        if constexpr (Op::kInputs == 2)
            b[q] = load_pack<T, kN>(static_cast<const T*>(s.second) + at);
    }
#pragma unroll
    for (int c = 0; c < kN; ++c) {
        L of_a[kCount], of_b[kCount];
#pragma unroll
        for (int q = 0; q < kCount; ++q) {
            of_a[q] = convert<L>(a[q].at[c]);
            if constexpr (Op::kInputs == 2) of_b[q] = convert<L>(b[q].at[c]);
        }
        op.take(acc[c], of_a, of_b, line, step, result + c);
    }
}

template <class T, class Op, int kN>
__device__ inline void reduce_tile(const Op& op, const ReduceSource& s, typename Op::Acc* partial,
                                   typename Op::Acc* parts) {
    using Acc = typename Op::Acc;
    const int lane = static_cast<int>(threadIdx.x) & (s.lanes - 1);
    const int slice = static_cast<int>(threadIdx.x) / s.lanes;
    const int slices = kReduceThreads / s.lanes;
    const std::int64_t outer = blockIdx.x / s.blocks;
    const std::int64_t column =
        ((blockIdx.x - outer * s.blocks) * s.lanes + lane) * std::int64_t{kN};
    const bool mine = column < s.width;
    const std::int64_t result = outer * s.width + column;
    const std::int64_t begin = blockIdx.y * s.height;
    const std::int64_t rest = s.units - begin;
    const std::int64_t end = mine ? begin + (rest < s.height ? rest : s.height) : begin;
    const std::int64_t base = s.kept.place(outer * s.width) + column * s.stride;

    Acc acc[kN];
#pragma unroll
    for (int c = 0; c < kN; ++c) acc[c] = op.start();
    std::int64_t line = begin + slice;
#pragma unroll 1
    for (; line + (kReduceAtOnce - 1) * slices < end; line += kReduceAtOnce * slices)
        reduce_lines<Op, T, kReduceAtOnce>(op, acc, s, base, line, slices, result);
#pragma unroll 1
    for (; line < end; line += slices)
        reduce_lines<Op, T, 1>(op, acc, s, base, line, slices, result);

#pragma unroll
    for (int c = 0; c < kN; ++c) parts[c * kReduceThreads + threadIdx.x] = acc[c];
    __syncthreads();
    for (int half = slices / 2; half > 0; half /= 2) {
        if (slice < half)
            for (int c = 0; c < kN; ++c) {
                Acc* const part = parts + c * kReduceThreads + threadIdx.x;
                part[0] = op.join(part[0], part[half * s.lanes]);
            }
        __syncthreads();
    }
    if (slice != 0 || !mine) return;
    for (int c = 0; c < kN; ++c) {
        const Acc& total = parts[c * kReduceThreads + threadIdx.x];
        if (partial != nullptr)
            partial[(result + c) * s.pieces + blockIdx.y] = total;
        else
            op.write(result + c, total);
    }
}

template <class T, class Op>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_columns(Op op, ReduceSource s, typename Op::Acc* partial) {
    __shared__ typename Op::Acc parts[kReduceColumns<T> * kReduceThreads];
    if (s.packed)
        reduce_tile<T, Op, kReduceColumns<T>>(op, s, partial, parts);
    else
        reduce_tile<T, Op, 1>(op, s, partial, parts);
}

// Combines the pieces of a result. Each warp processes one result.
template <class Op>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_finish(Op op, std::int64_t results, std::int64_t pieces,
                  const typename Op::Acc* partial) {
    using Acc = typename Op::Acc;
    const Team team(kWarp);
    const std::int64_t result = thread_in_grid() / kWarp;
    const bool mine = result < results;
    Acc acc = op.start();
    for (std::int64_t k = team.rank; mine && k < pieces; k += kWarp)
        acc = op.join(acc, partial[result * pieces + k]);
    acc = team.combine(acc, [&](const Acc& a, const Acc& b) { return op.join(a, b); });
    if (mine && team.rank == 0) op.write(result, acc);
}

// Splits s.units into pieces to get enough blocks. Only the last piece can be smaller than `least`
// units.
inline void cut_reduction(ReduceSource& s, std::int64_t blocks, std::int64_t least) {
    s.pieces = std::max<std::int64_t>(1, std::min(kReduceBlocks / blocks, s.units / least));
    s.height = std::max<std::int64_t>(1, (s.units + s.pieces - 1) / s.pieces);
    s.pieces = std::max<std::int64_t>(1, (s.units + s.height - 1) / s.height);
}

// Returns whether loads of n elements of T along the innermost dimension in `along` are aligned.
template <class T>
bool reduction_packs(const ConstView& x, const ConstView& second, const DimList& along,
                     const DimList& across, int n) {
    const auto bytes = static_cast<std::uintptr_t>(n) * sizeof(T);
    if (along.count == 0 || along.inner_stride() != 1 || along.inner_size() % n != 0) return false;
    bool divide = reinterpret_cast<std::uintptr_t>(x.data) % bytes == 0 &&
                  reinterpret_cast<std::uintptr_t>(second.data) % bytes == 0;
    for (int d = 0; d + 1 < along.count; ++d) divide &= along.x_stride[d] % n == 0;
    for (int d = 0; d < across.count; ++d) divide &= across.x_stride[d] % n == 0;
    return divide;
}

// Starts a reduction. Results are numbered in row-major order of plan.kept. `second` is the second
// operand, if Op has one; it must have x's dtype, shape and strides.
template <class T, class Op>
void reduce(Cuda& on, const ReducePlan& plan, const Op& op, const ConstView& x,
            const ConstView& second = {}) {
    if (plan.outputs == 0) return;
    using Acc = typename Op::Acc;
    const DimList &kept = plan.kept, &reduced = plan.reduced;
    const bool columns =
        kept.count > 0 && kept.inner_size() >= 8 && plan.n > 1 &&
        DimList::magnitude(kept.inner_stride()) < DimList::magnitude(reduced.inner_stride());
    ReduceSource s = {};
    s.x = x.data, s.second = second.data, s.results = plan.outputs;
    s.kept = DeviceDims(kept.count, kept.size, kept.x_stride);
    DimList units = reduced;
    const int pack = columns ? kReduceColumns<T> : kPack<T>;
    s.packed = columns ? reduction_packs<T>(x, second, kept, reduced, pack)
                       : reduction_packs<T>(x, second, reduced, kept, pack);
    if (s.packed && !columns) {
        units.size[units.count - 1] /= pack;
        units.x_stride[units.count - 1] = pack;
    }
    s.reduced = DeviceDims(units.count, units.size, units.x_stride);
    s.units = units.numel();
    const TeamLayout layout(team_for(s.units, kReduceAtOnce, kReduceThreads), kReduceThreads);
    std::int64_t blocks = layout.blocks(s.results), least = layout.team;
    if (columns) {
        const int each = s.packed ? pack : 1;
        s.width = kept.inner_size(), s.stride = kept.inner_stride();
        s.lanes = team_for(s.width, each, kWarp);
        s.blocks = (s.width + s.lanes * each - 1) / (s.lanes * each);
        blocks = s.results / s.width * s.blocks, least = kReduceThreads / s.lanes;
    }
    cut_reduction(s, blocks, least * 2 * kReduceAtOnce);

    DeviceScratch scratch(on);
    Acc* const partial = s.pieces > 1 ? scratch.take<Acc>(s.results * s.pieces) : nullptr;
    if (columns)
        start(on, {{blocks, s.pieces}, kReduceThreads}, &reduce_columns<T, Op>, op, s, partial);
    else
        start(on, {{blocks, s.pieces}, layout.threads}, &reduce_rows<T, Op>, op, s, layout.team,
              partial);
    if (partial != nullptr)
        start(on, {{TeamLayout(kWarp, kReduceThreads).blocks(s.results)}, kReduceThreads},
              &reduce_finish<Op>, op, s.results, s.pieces, partial);
}

}  // namespace axle::kernels
