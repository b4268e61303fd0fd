// Copies tiles of a matrix product from and to matrices that have another dtype or layout.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/view.h"
#include "kernels/walk.h"

namespace axle::kernels {

// Loads a tile of `rows` rows of `columns` elements, converted to T. The tile begins at element
// `start` of the data of a view with at least two dimensions. The rows of the result are adjacent.
template <class T>
void load_tile(const View& from, std::int64_t start, std::int64_t rows, std::int64_t columns,
               T* to) {
    for (std::int64_t i = 0; i < rows; ++i, to += columns) {
        const T* row = load_lanes<T>(at(from.data, from.dtype, start + i * from.back_stride(2)),
                                     from.dtype, from.back_stride(1), columns, to);
        if (row != to) std::copy(row, row + columns, to);
    }
}
// Stores a tile of adjacent rows, converted to the dtype of the view.
template <class T>
void store_tile(const T* tile, const View& to, std::int64_t start, std::int64_t rows,
                std::int64_t columns) {
    for (std::int64_t i = 0; i < rows; ++i)
        store_lanes(tile + i * columns, at(to.data, to.dtype, start + i * to.back_stride(2)),
                    to.dtype, to.back_stride(1), columns);
}

}  // namespace axle::kernels
