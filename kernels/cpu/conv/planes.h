// Iteration over planes [h, w] of images, numbered in row-major order of the leading dimensions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/rows.h"
#include "kernels/walk.h"

namespace axle::kernels {

// The planes of a view with at least two dimensions.
class Planes {
  public:
    explicit Planes(ConstView v) : rows_({without_last(v)}) {}

    std::int64_t count() const { return rows_.count(); }
    // Returns the offset of a plane from the start of the view, in elements.
    std::int64_t offset(std::int64_t plane) const { return rows_.offsets(plane)[0]; }

  private:
    static ConstView without_last(ConstView v) {
        --v.ndim;
        return v;
    }

    Rows<1> rows_;
};

// Returns one row of the plane that starts at `offset`, converted to lanes as load_lanes() does.
template <class L>
const L* load_plane_row(const ConstView& v, std::int64_t offset, std::int64_t row, L* buffer) {
    return load_lanes<L>(at(v.data, v.dtype, offset + row * v.back_stride(2)), v.dtype,
                         v.back_stride(1), v.back(1), buffer);
}

// Returns the number of planes per task. `work` is the number of elements that are read or written
// per plane. Tasks are large enough to hide their cost, and few enough that each can have its own
// scratch memory.
inline std::int64_t planes_per_task(std::int64_t planes, std::int64_t work) {
    constexpr std::int64_t kGrain = std::int64_t{1} << 15, kTasks = 32;
    return std::max(kGrain / std::max<std::int64_t>(work, 1) + 1, (planes + kTasks - 1) / kTasks);
}

}  // namespace axle::kernels
