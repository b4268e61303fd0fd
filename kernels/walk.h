// Iteration over several strided operands together, for elementwise kernels.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "kernels/view.h"

namespace axle::kernels {

// The common iteration order of kOperands views of one shape. Dimensions of size 1 are omitted. The
// other dimensions are sorted by the magnitude of their stride in the first operand (the output),
// largest first. Adjacent dimensions are merged if the strides of all operands permit it.
template <int kOperands>
class Walk {
  public:
    // Creates a walk. All views must have the shape of the first view.
    explicit Walk(const std::array<ConstView, kOperands>& views) {
        const ConstView& first = views[0];
        for (int d = 0; d < first.ndim; ++d) {
            if (first.shape[d] == 0) empty_ = true;
            if (first.shape[d] == 1) continue;
            shape_[ndim_] = first.shape[d];
            for (int k = 0; k < kOperands; ++k) stride_[k][ndim_] = views[k].stride[d];
            ++ndim_;
        }
        sort();
        merge();
        if (ndim_ == 0) {
            ndim_ = 1, shape_[0] = 1;
            for (int k = 0; k < kOperands; ++k) stride_[k][0] = 0;
        }
        if (empty_) return;
        rows_ = 1;
        for (int d = 0; d + 1 < ndim_; ++d) rows_ *= shape_[d];
    }

    // rows() returns the number of rows, which are runs along the innermost dimension. width()
    // returns the length of a row, and stride() the distance between its elements in an operand.
    std::int64_t rows() const { return empty_ ? 0 : rows_; }
    std::int64_t width() const { return empty_ ? 0 : shape_[ndim_ - 1]; }
    std::int64_t stride(int operand) const { return stride_[operand][ndim_ - 1]; }
    // Returns the number of dimensions after merging, at least 1. Dimension 0 is the outermost.
    int ndim() const { return ndim_; }
    std::int64_t size(int d) const { return empty_ ? 0 : shape_[d]; }
    std::int64_t stride(int operand, int d) const { return stride_[operand][d]; }
    // Returns the offset of the row's first element in each operand, in elements.
    std::array<std::int64_t, kOperands> offsets(std::int64_t row) const {
        std::array<std::int64_t, kOperands> at = {};
        for (int d = ndim_ - 2; d >= 0; --d) {
            const std::int64_t i = row % shape_[d];
            row /= shape_[d];
            for (int k = 0; k < kOperands; ++k) at[k] += i * stride_[k][d];
        }
        return at;
    }

  private:
    static std::int64_t magnitude(std::int64_t stride) { return stride < 0 ? -stride : stride; }

    // Sorts by the magnitude of the output's stride, largest first, with a stable insertion sort.
    void sort() {
        for (int i = 1; i < ndim_; ++i)
            for (int d = i; d > 0 && magnitude(stride_[0][d]) > magnitude(stride_[0][d - 1]); --d) {
                std::swap(shape_[d], shape_[d - 1]);
                for (int k = 0; k < kOperands; ++k) std::swap(stride_[k][d], stride_[k][d - 1]);
            }
    }

    // Merges two adjacent dimensions if, in every operand, the outer dimension continues the inner
    // dimension without a gap.
    void merge() {
        int kept = 0;
        for (int d = 1; d < ndim_; ++d) {
            bool together = true;
            for (int k = 0; k < kOperands; ++k)
                together &= stride_[k][kept] == stride_[k][d] * shape_[d];
            if (!together) ++kept;
            shape_[kept] = together ? shape_[kept] * shape_[d] : shape_[d];
            for (int k = 0; k < kOperands; ++k) stride_[k][kept] = stride_[k][d];
        }
        if (ndim_ > 0) ndim_ = kept + 1;
    }

    bool empty_ = false;
    int ndim_ = 0;
    std::int64_t rows_ = 0;
    std::int64_t shape_[kMaxDims] = {};
    std::int64_t stride_[kOperands][kMaxDims] = {};
};

// Returns the address of the element at offset `elements` from data.
inline const void* at(const void* data, DType dtype, std::int64_t elements) {
    return static_cast<const char*>(data) + elements * size_of(dtype);
}
inline void* at(void* data, DType dtype, std::int64_t elements) {
    return static_cast<char*>(data) + elements * size_of(dtype);
}

}  // namespace axle::kernels
