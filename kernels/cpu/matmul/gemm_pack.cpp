// Packs operands with any strides and any floating dtype into the panels that the register tiles
// read with stride 1. Each element is read once, in memory order, and written once to scratch
// memory that stays in L2. Lines along the depth are interleaved, up to 16 at once.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

// Packs lines that are closer together in memory than the elements of a line. At each depth, the
// elements of all lines form a row in memory. This row is split into panels.
template <class T>
void pack_across(const Lines& lines, std::int64_t extent, std::int64_t depth, std::int64_t width,
                 std::int64_t quantum, T* to, T* buffer) {
    const std::int64_t full = extent / width * width;
    const std::int64_t rest = extent - full;
    const std::int64_t last_width = round_up(rest, quantum);
    if (is_lanes<T>(lines.dtype, lines.stride, 2))
        gemm_kernels<T>().copy_panels(static_cast<const T*>(lines.data), lines.depth_stride, depth,
                                      full / width, width, to);
    const bool all = !is_lanes<T>(lines.dtype, lines.stride, 2);
    if (!all && rest == 0) return;
    const std::int64_t begin = all ? 0 : full;
    for (std::int64_t p = 0; p < depth; ++p) {
        const void* data =
            at(lines.data, lines.dtype, p * lines.depth_stride + begin * lines.stride);
        const T* line = load_lanes<T>(data, lines.dtype, lines.stride, extent - begin, buffer);
        for (std::int64_t i = begin; i < full; i += width, line += width)
            std::memcpy(to + i * depth + p * width, line,
                        static_cast<std::size_t>(width) * sizeof(T));
        T* last = to + full * depth + p * last_width;
        std::copy(line, line + rest, last);
        std::fill(last + rest, last + last_width, T(0));
    }
}

// Packs lines whose elements are closer together in memory than the lines.
template <class T>
void pack_along(const Lines& lines, std::int64_t extent, std::int64_t depth, std::int64_t width,
                std::int64_t quantum, T* to, T* buffer) {
    for (std::int64_t begin = 0; begin < extent; begin += width, to += width * depth) {
        const std::int64_t valid = std::min(width, extent - begin);
        const std::int64_t step = round_up(valid, quantum);
        for (std::int64_t i = 0; i < step; i += kMaxInterleaved) {
            const std::int64_t count = std::min(kMaxInterleaved, step - i);
            const T* rows[kMaxInterleaved];
            for (std::int64_t r = 0; r < count; ++r) {
                T* const row = buffer + r * depth;
                if (i + r >= valid) std::fill(row, row + depth, T(0));
                rows[r] =
                    i + r >= valid
                        ? row
                        : load_lanes<T>(at(lines.data, lines.dtype, (begin + i + r) * lines.stride),
                                        lines.dtype, lines.depth_stride, depth, row);
            }
            gemm_kernels<T>().interleave(rows, static_cast<int>(count), depth, to + i, step);
        }
    }
}

// The number of pairs along the depth by which pack_pairs() prefetches.
constexpr std::int64_t kPairsAhead = 4;

// Packs lines element by element, for operands that are contiguous in neither direction.
void pack_strided(const Lines& lines, std::int64_t count, std::int64_t depth, std::int64_t width,
                  BFloat16Pair* to) {
    const auto* from = static_cast<const BFloat16*>(lines.data);
    for (std::int64_t p = 0; p < depth; p += 2, to += width) {
        std::fill(to, to + width, BFloat16Pair());
        for (std::int64_t i = 0; i < count; ++i) {
            const BFloat16* first = from + i * lines.stride + p * lines.depth_stride;
            to[i].first = *first;
            if (p + 1 < depth) to[i].second = first[lines.depth_stride];
        }
    }
}

// Packs bf16 lines as pairs into panels of `pairs` pairs along the depth.
void pack_pairs(const Lines& lines, std::int64_t extent, std::int64_t depth, std::int64_t width,
                std::int64_t quantum, std::int64_t pairs, BFloat16Pair* to) {
    const auto& kernels = gemm_kernels<BFloat16Pair>();
    const auto* from = static_cast<const BFloat16*>(lines.data);
    const std::int64_t present = divide_up(depth, 2);
    const bool across = lines.stride == 1 && lines.depth_stride != 1;
    if (across) {
        const std::int64_t full = extent / width * width, rest = extent - full;
        const std::int64_t ahead = 2 * kPairsAhead * lines.depth_stride;
        const std::int64_t last_width = std::min(width, round_up(rest, quantum));
        for (std::int64_t p = 0; p < present; ++p) {
            const BFloat16* const low = from + 2 * p * lines.depth_stride;
            const BFloat16* const high = 2 * p + 1 < depth ? low + lines.depth_stride : nullptr;
            kernels.pack_across(low, high, ahead, full, width, to + p * width, width * pairs);
            if (rest > 0)
                kernels.pack_across(low + full, high == nullptr ? nullptr : high + full, ahead,
                                    rest, last_width, to + full * pairs + p * last_width, 0);
        }
    }
    for (std::int64_t i = 0; i < extent; i += width, to += width * pairs) {
        const std::int64_t count = std::min(width, extent - i);
        const std::int64_t step = std::min(width, round_up(count, quantum));
        const Lines panel = {from + i * lines.stride, lines.dtype, lines.stride,
                             lines.depth_stride};
        if (lines.depth_stride == 1)
            kernels.pack_along(from + i * lines.stride, lines.stride, count, depth, step, to);
        else if (!across)
            pack_strided(panel, count, depth, step, to);
        std::fill(to + present * step, to + pairs * step, BFloat16Pair());
    }
}

}  // namespace

template <class T>
void pack_panels(const Lines& lines, std::int64_t extent, std::int64_t depth, std::int64_t width,
                 std::int64_t quantum, T* to, T* buffer) {
    if (std::abs(lines.depth_stride) < std::abs(lines.stride))
        return pack_along(lines, extent, depth, width, quantum, to, buffer);
    pack_across(lines, extent, depth, width, quantum, to, buffer);
}

template <>
void pack_panels(const Lines& lines, std::int64_t extent, std::int64_t depth, std::int64_t width,
                 std::int64_t quantum, BFloat16Pair* to, BFloat16Pair*) {
    pack_pairs(lines, extent, depth, width, quantum, units_of<BFloat16Pair>(depth), to);
}

template <>
void pack_panels(const Lines& lines, std::int64_t extent, std::int64_t depth, std::int64_t width,
                 std::int64_t quantum, AmxPair* to, AmxPair*) {
    pack_pairs(lines, extent, depth, width, quantum, units_of<AmxPair>(depth), to);
}

void pack_rows(const Lines& lines, std::int64_t extent, std::int64_t depth, AmxPair* to) {
    constexpr std::int64_t kLanes = 16;
    const auto& kernels = gemm_kernels<BFloat16Pair>();
    const auto* from = static_cast<const BFloat16*>(lines.data);
    const std::int64_t pairs = units_of<AmxPair>(depth);
    if (lines.depth_stride == 1) {
        for (std::int64_t i = 0; i < extent; ++i, from += lines.stride, to += pairs) {
            std::memcpy(static_cast<void*>(to), from,
                        static_cast<std::size_t>(depth) * sizeof(BFloat16));
            std::fill(&to->first + depth, &to->first + 2 * pairs, BFloat16());
        }
        std::fill(to, to + (round_up(extent, kLanes) - extent) * pairs, AmxPair());
        return;
    }
    // Packs two tiles of 16 rows as a panel, so that whole cache lines are read if the rows are
    // adjacent in memory, and transposes 16 x 16 pairs.
    constexpr std::int64_t kPanel = 2 * kLanes;
    for (std::int64_t i = 0; i < extent; i += kPanel, to += kPanel * pairs) {
        const std::int64_t count = std::min(kPanel, extent - i);
        const std::int64_t width = round_up(count, kLanes);
        for (std::int64_t p = 0; p < pairs; p += kLanes) {
            alignas(64) BFloat16Pair panel[kLanes * kPanel];
            const Lines part = {from + i * lines.stride + 2 * p * lines.depth_stride, lines.dtype,
                                lines.stride, lines.depth_stride};
            pack_pairs(part, count, std::min(2 * kLanes, depth - 2 * p), kPanel, kLanes, kLanes,
                       panel);
            for (std::int64_t j = 0; j < width; j += kLanes)
                kernels.transpose(panel + j, width, to + j * pairs + p, pairs);
        }
    }
}

template void pack_panels(const Lines&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                          float*, float*);
template void pack_panels(const Lines&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                          double*, double*);

}  // namespace axle::kernels
