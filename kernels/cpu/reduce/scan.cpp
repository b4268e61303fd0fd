// Cumulative sums. Four elements are added to each other before the running total is added, so that
// the chain of dependent additions is a quarter of the row's length. If rows are adjacent in memory
// (a scan over a dimension other than the last), they are processed side by side in the same order
// of additions, with one read and one write of memory by whole cache lines.
#include "kernels/ops/scan.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/rows.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

constexpr std::int64_t kTask = 32768;
constexpr std::int64_t kTogether = 256;  // minimum rows per task if rows are adjacent
constexpr int kGroup = 4;
static_assert(kBlock % kGroup == 0);

template <class Lane, class Sum>
void scan_block(const Lane* x, Lane* y, std::int64_t n, Sum& total) {
    std::int64_t i = 0;
    for (; i + kGroup <= n; i += kGroup) {
        const Sum a = static_cast<Sum>(x[i]), b = a + static_cast<Sum>(x[i + 1]),
                  c = b + static_cast<Sum>(x[i + 2]), d = c + static_cast<Sum>(x[i + 3]);
        y[i] = static_cast<Lane>(total + a), y[i + 1] = static_cast<Lane>(total + b);
        y[i + 2] = static_cast<Lane>(total + c);
        total += d;
        y[i + 3] = static_cast<Lane>(total);
    }
    for (Sum part = 0; i < n; ++i) {
        part += static_cast<Sum>(x[i]);
        y[i] = static_cast<Lane>(total + part);
    }
}

template <class Lane, class Sum>
void scan_row(const void* x, void* y, DType dtype, std::int64_t x_step, std::int64_t y_step,
              std::int64_t n) {
    Sum total = 0;
    if (is_lanes<Lane>(dtype, x_step, n) && is_lanes<Lane>(dtype, y_step, n))
        return scan_block(static_cast<const Lane*>(x), static_cast<Lane*>(y), n, total);
    alignas(64) Lane from[kBlock], to[kBlock];
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, n - begin);
        void* const out = at(y, dtype, begin * y_step);
        Lane* const lanes = is_lanes<Lane>(dtype, y_step, count) ? static_cast<Lane*>(out) : to;
        scan_block(load_lanes(at(x, dtype, begin * x_step), dtype, x_step, count, from), lanes,
                   count, total);
        store_lanes(lanes, out, dtype, y_step, count);
    }
}

// Strides of x or y: from an element to the next one in its row, and to the next row.
struct Steps {
    std::int64_t element, row;
};

// Processes `rows` <= kBlock rows together.
template <class Lane, class Sum>
void scan_side_by_side(const void* x, void* y, DType dtype, Steps x_steps, Steps y_steps,
                       std::int64_t n, std::int64_t rows) {
    alignas(64) Lane from[kBlock], to[kBlock];
    alignas(64) Sum total[kBlock] = {}, part[kBlock] = {};
    for (std::int64_t i = 0; i < n; ++i) {
        const Lane* in =
            load_lanes(at(x, dtype, i * x_steps.element), dtype, x_steps.row, rows, from);
        void* const out = at(y, dtype, i * y_steps.element);
        Lane* const lanes = is_lanes<Lane>(dtype, y_steps.row, rows) ? static_cast<Lane*>(out) : to;
        if (i % kGroup == 0) {
            for (std::int64_t r = 0; r < rows; ++r) {
                total[r] += part[r];
                part[r] = static_cast<Sum>(in[r]);
                lanes[r] = static_cast<Lane>(total[r] + part[r]);
            }
        } else {
            for (std::int64_t r = 0; r < rows; ++r) {
                part[r] += static_cast<Sum>(in[r]);
                lanes[r] = static_cast<Lane>(total[r] + part[r]);
            }
        }
        store_lanes(lanes, out, dtype, y_steps.row, rows);
    }
}

template <class Lane, class Sum>
void scan_rows(ConstView x, View y) {
    const Rows<2> rows({x, y});
    const std::int64_t n = x.back(1), per_task = (kTask + n - 1) / n;
    const Steps x_steps{x.back_stride(1), rows.step(0)}, y_steps{y.back_stride(1), rows.step(1)};
    const auto place = [&](std::int64_t row) {
        const auto offset = rows.offsets(row);
        return std::pair(at(x.data, x.dtype, offset[0]), at(y.data, y.dtype, offset[1]));
    };
    if (rows.run() == 1 || std::abs(y_steps.row) >= std::abs(y_steps.element)) {
        parallel_ranges(rows.count(), per_task, [&](std::int64_t first, std::int64_t last) {
            for (std::int64_t row = first; row < last; ++row) {
                const auto [from, to] = place(row);
                scan_row<Lane, Sum>(from, to, x.dtype, x_steps.element, y_steps.element, n);
            }
        });
        return;
    }
    const std::int64_t grain = std::max(kTogether, per_task);
    parallel_ranges(rows.count(), grain, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last;) {
            const std::int64_t count =
                std::min({kBlock, last - row, rows.run() - row % rows.run()});
            const auto [from, to] = place(row);
            scan_side_by_side<Lane, Sum>(from, to, x.dtype, x_steps, y_steps, n, count);
            row += count;
        }
    });
}

}  // namespace

void cumsum(Cpu&, ConstView x, View y) {
    if (x.numel() == 0) return;
    if (x.dtype == DType::f64) return scan_rows<double, double>(x, y);
    if (x.dtype == DType::f32) return scan_rows<float, double>(x, y);
    if (is_half(x.dtype)) return scan_rows<float, float>(x, y);
    scan_rows<std::int64_t, std::uint64_t>(x, y);  // unsigned, so that overflow wraps around
}

}  // namespace axle::kernels
