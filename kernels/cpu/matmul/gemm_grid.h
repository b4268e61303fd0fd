// How the tasks of a matrix product divide it.
#pragma once

#include <cstdint>

namespace axle::kernels {

// An operand is read in place if few tiles read each of its panels: the other operand of a task has
// at most this many panels.
inline constexpr std::int64_t kInPlaceReaders = 6;
// The maximum number of rows of a that a task reads in place, because each row is a separate stream
// of memory.
inline constexpr std::int64_t kInPlaceRows = 196;

// The properties of a product that determine its time. The depth is counted in units of packed
// operands.
struct GridProblem {
    std::int64_t m, n, depth, batches;
    std::int64_t max_rows, row_quantum, lanes;  // of a tile; a full tile is two vectors wide
    std::int64_t max_columns;                   // of a block of b
    std::int64_t speed;                         // UnitTraits::kSpeed
    bool a_in_place, b_in_place;                // whether operands have the layout of panels
};

// The rectangles of c that tasks compute, and the operands that are packed once for all tasks.
struct Grid {
    std::int64_t rows = 0, columns = 0;
    bool shares_a = false, shares_b = false;
};

// Returns the grid with the smallest estimated time.
Grid choose_grid(const GridProblem& problem, std::int64_t threads);

}  // namespace axle::kernels
