// The windows of a pooling operation along one axis.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/exec.h"
#include "kernels/ops/pool.h"

namespace axle::kernels {

// The inputs of one pooling window: begin, begin + dilation and so on, below `end`. The window is
// empty if end <= begin. begin is always inside the input.
struct PoolWindow {
    std::int64_t begin, end;
    std::int64_t padded;  // number of elements, including padding, if the dilation is 1
};

struct PoolWindows {
    std::int64_t in, out;
    PoolAxis pool;
    PoolWindow* windows;
    // The windows of outputs [whole_begin, whole_end) do not overlap padding. The range is empty if
    // adaptive windows have different sizes.
    std::int64_t whole_begin, whole_end;

    const PoolWindow& operator[](std::int64_t o) const { return windows[o]; }
};

// Returns the windows of all outputs of an axis, in scratch memory.
inline PoolWindows pool_windows(Scratch& scratch, PoolAxis pool, bool adaptive, std::int64_t in,
                                std::int64_t out) {
    const bool even = adaptive && in % out == 0;
    if (even) pool = {.kernel = in / out, .stride = in / out};
    PoolWindows axis = {in, out, pool, scratch.take<PoolWindow>(out), 0, 0};
    for (std::int64_t o = 0; o < out; ++o) {
        PoolWindow& window = axis.windows[o];
        if (adaptive && !even) {
            window.begin = o * in / out;
            window.end = ((o + 1) * in + out - 1) / out;
            window.padded = window.end - window.begin;
            continue;
        }
        const std::int64_t begin = o * pool.stride - pool.padding;
        const std::int64_t end = begin + (pool.kernel - 1) * pool.dilation + 1;
        window.padded = std::min(end, in + pool.padding) - begin;
        const std::int64_t missing = begin < 0 ? (-begin + pool.dilation - 1) / pool.dilation : 0;
        const std::int64_t first = begin + missing * pool.dilation;
        window.begin = std::min(first, in - 1);
        window.end = first < in ? std::min(end, in) : window.begin;
        if (begin < 0) axis.whole_begin = o + 1;
        if (end <= in) axis.whole_end = o + 1;
    }
    axis.whole_end = std::max(axis.whole_end, axis.whole_begin);
    return axis;
}

// Returns an upper bound of the number of inputs in a window along this axis.
inline std::int64_t max_window_rows(const PoolWindows& axis) {
    std::int64_t rows = 1;
    for (std::int64_t o = 0; o < axis.out; ++o)
        rows = std::max(rows, (axis[o].end - axis[o].begin) / axis.pool.dilation + 1);
    return rows;
}

}  // namespace axle::kernels
