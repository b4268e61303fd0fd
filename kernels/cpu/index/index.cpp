// Gather, scatter and triangles of matrices. Gather copies elements along rows of the output. If
// the index has stride 0 along a row, one index applies to the whole row, which is then copied at
// once. So selecting contiguous slices is as fast as memcpy. Scatter assigns every line along the
// dimension to one task, which processes the elements of the line in order.
#include "kernels/ops/index.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/ops/copy.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

constexpr std::int64_t kTask = 32768;

// Calls f with an unsigned integer type of the dtype's size.
template <class F>
void visit_bits(DType t, F&& f) {
    switch (size_of(t)) {
        case 8:
            return f.template operator()<std::uint64_t>();
        case 4:
            return f.template operator()<std::uint32_t>();
        case 2:
            return f.template operator()<std::uint16_t>();
        default:
            return f.template operator()<std::uint8_t>();
    }
}

// Calls f(row, begin, end) for pieces [begin, end) of a walk's rows. The split into tasks depends
// on the shape only.
template <int kOperands, class F>
void for_pieces(const Walk<kOperands>& walk, F&& f) {
    const std::int64_t width = walk.width();
    if (walk.rows() == 0 || width == 0) return;
    const std::int64_t parts = (width + kTask - 1) / kTask;
    const std::int64_t grain = std::max<std::int64_t>(1, kTask / width);
    parallel_ranges(walk.rows() * parts, grain, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t piece = first; piece < last; ++piece) {
            const std::int64_t begin = piece % parts * kTask;
            f(piece / parts, begin, std::min(width, begin + kTask));
        }
    });
}

template <class Bits>
void copy_elements(const Bits* x, std::int64_t x_stride, Bits* y, std::int64_t y_stride,
                   std::int64_t n) {
    if (x_stride == 1 && y_stride == 1) {
        std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(Bits));
        return;
    }
    for (std::int64_t i = 0; i < n; ++i) y[i * y_stride] = x[i * x_stride];
}

template <class Bits, class Index>
void gather_rows(const Walk<3>& walk, std::int64_t step, const Bits* x, const Index* index,
                 Bits* y) {
    const std::int64_t xs = walk.stride(1), is = walk.stride(2), ys = walk.stride(0);
    for_pieces(walk, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
        const auto offset = walk.offsets(row);
        const Bits* from = x + offset[1];
        const Index* at_index = index + offset[2];
        Bits* to = y + offset[0];
        if (is == 0)
            return copy_elements(from + *at_index * step + begin * xs, xs, to + begin * ys, ys,
                                 end - begin);
        for (std::int64_t i = begin; i < end; ++i)
            to[i * ys] = from[i * xs + at_index[i * is] * step];
    });
}

// The new value of a target of scatter, given its value and an element. combine() converts f16 and
// bf16 to f32 first. For booleans, the sum and the maximum are "or", the product and the minimum
// are "and".
struct Sum {
    template <class T>
    T operator()(T a, T b) const {
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
    T operator()(T a, T b) const {
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
    T operator()(T a, T b) const {
        return a != a || a > b ? a : b;
    }
};
struct Minimum {
    template <class T>
    T operator()(T a, T b) const {
        return a != a || a < b ? a : b;
    }
};
struct Replacement {
    template <class T>
    T operator()(T /*a*/, T b) const {
        return b;
    }
};

template <class Op, class T>
T combine(Op op, T a, T b) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
        return T(op(static_cast<float>(a), static_cast<float>(b)));
    else
        return op(a, b);
}

// A line along the scattered dimension: its length and the strides of the operands.
struct Line {
    std::int64_t length, y, index, src;
};

// Processes lines [begin, end) of a row. The inner loop is over the dimension with the smaller
// stride in y. With either loop order, the elements of a line are processed in order.
template <class Op, class T, class Index>
void scatter_lines(Op op, const Walk<3>& walk, const Line& line, std::int64_t row,
                   std::int64_t begin, std::int64_t end, const Index* index, const T* src, T* y) {
    const auto offset = walk.offsets(row);
    const std::int64_t ys = walk.stride(0), is = walk.stride(1), ss = walk.stride(2);
    y += offset[0], index += offset[1], src += offset[2];
    const auto update = [&](std::int64_t i, std::int64_t j) {
        T& target = y[i * ys + index[i * is + j * line.index] * line.y];
        target = combine(op, target, src[i * ss + j * line.src]);
    };
    if (line.y <= ys) {
        for (std::int64_t i = begin; i < end; ++i)
            for (std::int64_t j = 0; j < line.length; ++j) update(i, j);
        return;
    }
    for (std::int64_t j = 0; j < line.length; ++j)
        for (std::int64_t i = begin; i < end; ++i) update(i, j);
}

// Replaces the target in y of each element of src by op(target, element). The elements of one line
// are processed in order, by one thread. T is the type of the elements of y and src.
template <class T, class Op>
void scatter_with(Op op, int dim, ConstView index, ConstView src, View y) {
    const Line line{index.shape[dim], y.stride[dim], index.stride[dim], src.stride[dim]};
    ConstView targets = index;
    for (int d = 0; d < y.ndim; ++d) targets.stride[d] = y.stride[d];
    index.shape[dim] = src.shape[dim] = targets.shape[dim] = 1;
    const Walk<3> walk({targets, index, src});
    const std::int64_t width = walk.width();
    if (walk.rows() == 0 || width == 0 || line.length == 0) return;
    // A piece is one or more lines with about kTask elements in total.
    const std::int64_t lines = std::clamp<std::int64_t>(kTask / line.length, 1, width);
    const std::int64_t parts = (width + lines - 1) / lines;
    const std::int64_t grain = std::max<std::int64_t>(1, kTask / (lines * line.length));
    visit_index(index.dtype, [&]<class Index>() {
        parallel_ranges(walk.rows() * parts, grain, [&](std::int64_t first, std::int64_t last) {
            for (std::int64_t piece = first; piece < last; ++piece) {
                const std::int64_t begin = piece % parts * lines;
                scatter_lines(op, walk, line, piece / parts, begin, std::min(width, begin + lines),
                              index.as<Index>(), src.as<T>(), y.as<T>());
            }
        });
    });
}

}  // namespace

BadIndex find_bad_index(Cpu& on, ConstView index, std::int64_t size) {
    // Along a broadcast dimension, only the first element is read: all elements are equal, and the
    // first one is also the first in row-major order.
    ConstView once = index;
    std::int64_t weight[kMaxDims] = {};
    std::int64_t step = 1;
    for (int d = index.ndim - 1; d >= 0; --d) {
        weight[d] = step;
        step *= index.shape[d];
        if (index.stride[d] == 0) once.shape[d] = std::min<std::int64_t>(1, index.shape[d]);
    }
    const std::int64_t n = once.numel();
    const std::int64_t tasks = (n + kTask - 1) / kTask;
    Scratch scratch(on);
    BadIndex* found = scratch.take<BadIndex>(tasks);
    visit_index(index.dtype, [&]<class Index>() {
        const bool dense = once.contiguous();
        parallel_ranges(n, kTask, [&](std::int64_t begin, std::int64_t end) {
            BadIndex& bad = found[begin / kTask] = {};
            for (std::int64_t i = begin; i < end; ++i) {
                std::int64_t offset = i, position = i;
                if (!dense) {
                    offset = position = 0;
                    for (std::int64_t d = once.ndim - 1, rest = i; d >= 0; --d) {
                        offset += rest % once.shape[d] * once.stride[d];
                        position += rest % once.shape[d] * weight[d];
                        rest /= once.shape[d];
                    }
                }
                const std::int64_t value = once.as<Index>()[offset];
                if (value >= 0 && value < size) continue;
                bad = {position, value};
                return;
            }
        });
    });
    for (std::int64_t task = 0; task < tasks; ++task)
        if (found[task].position >= 0) return found[task];
    return {};
}

void gather(Cpu&, int dim, ConstView x, ConstView index, View y) {
    ConstView origin = y;  // x at index 0 along the dimension, with y's shape
    for (int d = 0; d < y.ndim; ++d) origin.stride[d] = d == dim ? 0 : x.stride[d];
    const Walk<3> walk({y, origin, index});
    visit_bits(y.dtype, [&]<class Bits>() {
        visit_index(index.dtype, [&]<class Index>() {
            gather_rows(walk, x.stride[dim], x.as<Bits>(), index.as<Index>(), y.as<Bits>());
        });
    });
}

void scatter_add(Cpu&, int dim, ConstView index, ConstView src, View y) {
    visit_compute(y.dtype, [&]<class T>() { scatter_with<T>(Sum(), dim, index, src, y); });
}

void scatter(Cpu&, Scatter how, int dim, ConstView index, ConstView src, View y) {
    if (how == Scatter::replace)
        return visit_bits(
            y.dtype, [&]<class Bits>() { scatter_with<Bits>(Replacement(), dim, index, src, y); });
    visit_compute(y.dtype, [&]<class T>() {
        if (how == Scatter::multiply) scatter_with<T>(Product(), dim, index, src, y);
        if (how == Scatter::maximum) scatter_with<T>(Maximum(), dim, index, src, y);
        if (how == Scatter::minimum) scatter_with<T>(Minimum(), dim, index, src, y);
    });
}

void triangle(Cpu&, bool lower, std::int64_t diagonal, ConstView x, View y) {
    const std::int64_t height = y.back(2), width = y.back(1);
    const std::int64_t n = y.numel();
    if (n == 0) return;
    const std::int64_t xs = x.back_stride(1), ys = y.back_stride(1);
    visit_bits(y.dtype, [&]<class Bits>() {
        const std::int64_t grain = std::max<std::int64_t>(1, kTask / width);
        parallel_ranges(n / width, grain, [&](std::int64_t first, std::int64_t last) {
            for (std::int64_t row = first; row < last; ++row) {
                const Bits* from = x.as<Bits>();
                Bits* to = y.as<Bits>();
                for (std::int64_t d = y.ndim - 2, rest = row; d >= 0; --d) {
                    from += rest % y.shape[d] * x.stride[d];
                    to += rest % y.shape[d] * y.stride[d];
                    rest /= y.shape[d];
                }
                // Columns c below `edge` satisfy c - r < diagonal (or <= diagonal, if lower).
                const std::int64_t r = row % height;
                const std::int64_t shift = std::clamp(diagonal, -height, width) + (lower ? 1 : 0);
                const std::int64_t edge = std::clamp<std::int64_t>(r + shift, 0, width);
                const std::int64_t begin = lower ? 0 : edge, end = lower ? edge : width;
                if (from != to || xs != ys)
                    copy_elements(from + begin * xs, xs, to + begin * ys, ys, end - begin);
                for (std::int64_t c = 0; c < begin; ++c) to[c * ys] = 0;
                for (std::int64_t c = end; c < width; ++c) to[c * ys] = 0;
            }
        });
    });
}

}  // namespace axle::kernels
