// Iteration over the rows of several views. A row is the last dimension; all other dimensions have
// the same sizes in all views.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/view.h"

namespace axle::kernels {

// The rows of kViews views, numbered in row-major order. Adjacent dimensions are merged if the
// strides of all views permit it.
template <int kViews>
class Rows {
  public:
    explicit Rows(const std::array<ConstView, kViews>& views) {
        for (int d = 0; d + 1 < views[0].ndim; ++d) {
            const std::int64_t size = views[0].shape[d];
            count_ *= size;
            if (size == 1) continue;
            bool together = ndim_ > 0;
            for (int k = 0; together && k < kViews; ++k)
                together = stride_[k][ndim_ - 1] == views[k].stride[d] * size;
            if (!together) shape_[ndim_++] = 1;
            shape_[ndim_ - 1] *= size;
            for (int k = 0; k < kViews; ++k) stride_[k][ndim_ - 1] = views[k].stride[d];
        }
        if (ndim_ == 0) shape_[ndim_++] = 1;
    }

    std::int64_t count() const { return count_; }
    // A run is a sequence of rows with a fixed distance. run() returns its number of rows. In a
    // view, rows k * run() to (k + 1) * run() - 1 start step(view) elements apart.
    std::int64_t run() const { return shape_[ndim_ - 1]; }
    std::int64_t step(int view) const { return stride_[view][ndim_ - 1]; }
    // Returns the offset of the row's start in each view, in elements.
    std::array<std::int64_t, kViews> offsets(std::int64_t row) const {
        std::array<std::int64_t, kViews> at = {};
        for (int d = ndim_ - 1; d >= 0; --d) {
            const std::int64_t i = d == 0 ? row : row % shape_[d];
            if (d != 0) row /= shape_[d];
            for (int k = 0; k < kViews; ++k) at[k] += i * stride_[k][d];
        }
        return at;
    }

  private:
    int ndim_ = 0;
    std::int64_t count_ = 1;
    std::int64_t shape_[kMaxDims] = {};
    std::int64_t stride_[kViews][kMaxDims] = {};
};

}  // namespace axle::kernels
