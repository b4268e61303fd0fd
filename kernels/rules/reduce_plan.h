// Private to kernels: the order in which a reduction reads its operand, as lists of kept and of
// reduced dimensions.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/view.h"

namespace axle::kernels {

// Up to kMaxDims dimensions of one or two operands, ordered by the magnitude of x's stride, largest
// first.
struct DimList {
    int count = 0;
    std::int64_t size[kMaxDims] = {};
    std::int64_t x_stride[kMaxDims] = {};
    std::int64_t y_stride[kMaxDims] = {};  // all 0 for reduced dimensions

    std::int64_t numel() const {
        std::int64_t n = 1;
        for (int d = 0; d < count; ++d) n *= size[d];
        return n;
    }
    std::int64_t inner_size() const { return count == 0 ? 1 : size[count - 1]; }
    std::int64_t inner_stride() const { return count == 0 ? 1 : x_stride[count - 1]; }

    struct Offsets {
        std::int64_t x, y;
    };
    // Returns the offsets of the index-th element in row-major order.
    Offsets offsets(std::int64_t index) const {
        Offsets at = {0, 0};
        for (int d = count - 1; d > 0; --d) {
            const std::int64_t i = index % size[d];
            index /= size[d];
            at.x += i * x_stride[d], at.y += i * y_stride[d];
        }
        if (count > 0) at.x += index * x_stride[0], at.y += index * y_stride[0];
        return at;
    }

    void push(std::int64_t n, std::int64_t x, std::int64_t y) {
        size[count] = n, x_stride[count] = x, y_stride[count] = y;
        ++count;
    }
    // Sorts by the magnitude of x's stride with a stable insertion sort, and merges adjacent
    // dimensions that have no gap between them.
    void sort_and_merge() {
        for (int i = 1; i < count; ++i)
            for (int d = i; d > 0 && magnitude(x_stride[d]) > magnitude(x_stride[d - 1]); --d) {
                std::swap(size[d], size[d - 1]);
                std::swap(x_stride[d], x_stride[d - 1]);
                std::swap(y_stride[d], y_stride[d - 1]);
            }
        int last = 0;
        for (int d = 1; d < count; ++d) {
            const bool together =
                x_stride[last] == x_stride[d] * size[d] && y_stride[last] == y_stride[d] * size[d];
            if (!together) ++last;
            size[last] = together ? size[last] * size[d] : size[d];
            x_stride[last] = x_stride[d], y_stride[last] = y_stride[d];
        }
        if (count > 0) count = last + 1;
    }

    static std::int64_t magnitude(std::int64_t stride) { return stride < 0 ? -stride : stride; }
};

// The plan of a reduction of x to y; kernels/ops/reduce.h defines which dimensions are reduced.
// Results are numbered in row-major order of the dimensions in `kept`.
struct ReducePlan {
    DimList kept, reduced;
    std::int64_t outputs, n;  // number of results, and of elements per result

    ReducePlan(const ConstView& x, const ConstView& y) {
        for (int d = 0; d < x.ndim; ++d) {
            if (x.shape[d] == 1) continue;
            if (y.shape[d] == 1)
                reduced.push(x.shape[d], x.stride[d], 0);
            else
                kept.push(x.shape[d], x.stride[d], y.stride[d]);
        }
        kept.sort_and_merge();
        reduced.sort_and_merge();
        outputs = kept.numel(), n = reduced.numel();
    }

    // Returns how many rows of a contiguous matrix with fewer than 64 columns can be processed as
    // one row of at most `widest` elements, so that a walk over columns fills its vectors. Returns
    // 1 if x is not such a matrix.
    std::int64_t fold(std::int64_t widest) const {
        const bool matrix = kept.count == 1 && reduced.count == 1 && kept.x_stride[0] == 1 &&
                            reduced.x_stride[0] == kept.size[0];
        return matrix && kept.size[0] < 64 ? widest / kept.size[0] : 1;
    }

    // Returns whether to compute many results together, as columns. This is faster if memory is
    // contiguous along the kept dimensions, or if the reduced dimensions have only short contiguous
    // parts.
    bool by_columns() const {
        if (n <= 1) return true;
        if (kept.count == 0) return false;
        const std::int64_t along = DimList::magnitude(kept.inner_stride());
        const std::int64_t across = DimList::magnitude(reduced.inner_stride());
        if (across < along) return reduced.inner_size() < 16 && kept.inner_size() >= 16;
        return kept.inner_size() >= 4 || reduced.inner_size() < 16;
    }
};

}  // namespace axle::kernels
