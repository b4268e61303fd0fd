#include "kernels/cpu/matmul/gemm_grid.h"

#include <algorithm>

#include "kernels/cpu/matmul/gemm.h"

namespace axle::kernels {
namespace {

// The maximum number of rows of a task (before rounding up to full tiles), which limits the sums
// that a 16-bit c keeps in scratch memory.
constexpr std::int64_t kMaxRows = 2048;
// The minimum number of multiply-adds per thread if several threads are used.
constexpr std::int64_t kParallel = std::int64_t{1} << 19;
// The largest operand that tasks share, in units. Larger operands would not stay in the cache.
constexpr std::int64_t kMaxShared = std::int64_t{1} << 22;
// The largest operand that stays in L2, in units.
constexpr std::int64_t kL2 = std::int64_t{1} << 18;

// Costs in multiply-adds of vectors, measured on an Intel Xeon with AVX-512. kTask is the cost of a
// task, and kSharing the cost of packing shared operands before the tasks.
constexpr double kTask = 3000, kSharing = 20000;
// The first task that reads a large b in place waits for memory, because the rows of a panel are
// far apart. This is the cost per unit.
constexpr double kFirstInPlace = 1.3;
// The smallest b for which this is added. Smaller operands are usually still in a cache.
constexpr std::int64_t kLarge = std::int64_t{1} << 20;

// The cost of the operands of a task, per unit.
struct OperandCost {
    double packed;  // by the task
    double in_place = 0.3;
    double shared_in_l2 = 0.1, shared = 1;
    double write_shared = 2;  // the time to pack shared operands that exceed L2, relative to others
};

// Returns whether tasks can share operands. With AMX, sharing them was not faster.
bool can_share(const GridProblem& p) { return p.speed == 1; }

// With AMX, few large tasks were as fast as other grids, and a low cost of packing selects them.
OperandCost operand_cost(const GridProblem& p) { return {.packed = can_share(p) ? 1.5 : 1. / 3}; }

// Return whether tasks that do not share an operand read it in place.
bool reads_a_in_place(const GridProblem& p, const Grid& grid) {
    return p.a_in_place && grid.columns <= kInPlaceReaders * 2 * p.lanes &&
           grid.rows <= kInPlaceRows;
}
bool reads_b_in_place(const GridProblem& p, const Grid& grid) {
    return p.b_in_place && grid.rows <= kInPlaceReaders * p.max_rows;
}

// Returns the estimated time of a task.
double task_cost(const GridProblem& p, const Grid& grid) {
    const OperandCost cost = operand_cost(p);
    const auto shared = [&](std::int64_t lines) {
        return lines * p.depth <= kL2 ? cost.shared_in_l2 : cost.shared;
    };
    const bool a_in_place = reads_a_in_place(p, grid), b_in_place = reads_b_in_place(p, grid);
    const double a = grid.shares_a ? shared(p.m) : a_in_place ? cost.in_place : cost.packed;
    const double b = grid.shares_b ? shared(p.n) : b_in_place ? cost.in_place : cost.packed;
    const double operands =
        a * static_cast<double>(grid.rows * divide_up(grid.columns, p.max_columns)) +
        b * static_cast<double>(grid.columns);
    const double vectors =
        static_cast<double>(divide_up(grid.columns, p.lanes) * round_up(grid.rows, p.row_quantum));
    const double speed = static_cast<double>(p.speed);
    return static_cast<double>(p.depth) * (vectors + speed * operands) + speed * kTask;
}

// Returns the estimated time of a product, which is the sum of the times of sharing operands, of
// the tasks of the busiest thread, and of a part of another task. The part is added because threads
// have different speeds.
double grid_cost(const GridProblem& p, const Grid& grid, std::int64_t threads) {
    const std::int64_t tasks = p.batches * divide_up(p.m, grid.rows) * divide_up(p.n, grid.columns);
    const double part = threads == 1 ? 0 : can_share(p) ? 0.3 : 0.15;
    const double time =
        (static_cast<double>(divide_up(tasks, threads)) + part) * task_cost(p, grid);
    const OperandCost cost = operand_cost(p);
    const double of_b = static_cast<double>(p.n * p.depth);
    // The part of the time that all threads share.
    double total = 0;
    if (!grid.shares_b && reads_b_in_place(p, grid) && p.n * p.depth >= kLarge)
        total += kFirstInPlace * of_b;
    if (grid.shares_a || grid.shares_b) {
        const double units =
            (grid.shares_a ? static_cast<double>(p.m * p.depth) : 0) + (grid.shares_b ? of_b : 0);
        total += cost.packed * units * (units <= kL2 ? 1 : cost.write_shared);
        total += kSharing * static_cast<double>(threads);
    }
    return time + static_cast<double>(p.speed) * total / static_cast<double>(threads);
}

}  // namespace

Grid choose_grid(const GridProblem& p, std::int64_t threads) {
    const std::int64_t work = p.batches * p.m * p.n * std::max<std::int64_t>(p.depth, 1);
    threads = std::min(threads, std::max<std::int64_t>(1, work / (p.speed * kParallel)));
    const std::int64_t most = threads == 1 || p.batches >= 8 * threads ? 1 : 8 * threads;
    Grid best;
    double best_cost = 0;
    const auto consider = [&](const Grid& grid) {
        const double cost = grid_cost(p, grid, threads);
        if (best.rows != 0 && cost >= best_cost) return;
        best = grid, best_cost = cost;
    };
    for (std::int64_t i = divide_up(p.m, kMaxRows); i <= p.m; i += 1 + i / 4) {
        const std::int64_t rows = std::min(p.m, round_up(divide_up(p.m, i), p.max_rows));
        for (std::int64_t j = 1; j <= p.n && (j == 1 || i * j <= most); j += 1 + j / 4) {
            const std::int64_t columns = std::min(p.n, round_up(divide_up(p.n, j), p.lanes));
            consider({rows, columns});
            if (!can_share(p) || threads == 1 || p.batches > 1) continue;
            // An operand is shared only if several tasks read it. The columns of a task begin with
            // a full panel.
            const bool a = columns < p.n && p.m * p.depth <= kMaxShared;
            const bool b = rows < p.m && p.n * p.depth <= kMaxShared &&
                           (columns == p.n || columns % (2 * p.lanes) == 0);
            if (a || b) consider({rows, columns, a, b});
        }
        if (i >= most) break;
    }
    return best;
}

}  // namespace axle::kernels
