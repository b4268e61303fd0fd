// Cumulative sums, products and extremes, and the gradient of products. In sums and products, four
// elements are combined with each other before they are combined with the running total. So the
// chain of dependent operations is a quarter of the row's length. In a sum or product over a
// dimension that is not the last, rows are adjacent in memory and are processed together in the
// same order of operations, so memory is read and written in full cache lines. All other scans
// process one row at a time. Memory is read once and written once.
#include "kernels/ops/scan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <type_traits>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/rows.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

constexpr std::int64_t kTask = 32768;
constexpr std::int64_t kTogether = 256;  // minimum rows per task if rows are adjacent
constexpr int kGroup = 4;
static_assert(kBlock % kGroup == 0);

struct Plus {
    static constexpr int kIdentity = 0;
    template <class T>
    T operator()(T a, T b) const {
        return a + b;
    }
};
struct Times {
    static constexpr int kIdentity = 1;
    template <class T>
    T operator()(T a, T b) const {
        return a * b;
    }
};

template <class Lane, class Sum, class Op>
void scan_block(Op op, const Lane* x, Lane* y, std::int64_t n, Sum& total) {
    std::int64_t i = 0;
    for (; i + kGroup <= n; i += kGroup) {
        const Sum a = static_cast<Sum>(x[i]), b = op(a, static_cast<Sum>(x[i + 1])),
                  c = op(b, static_cast<Sum>(x[i + 2])), d = op(c, static_cast<Sum>(x[i + 3]));
        y[i] = static_cast<Lane>(op(total, a)), y[i + 1] = static_cast<Lane>(op(total, b));
        y[i + 2] = static_cast<Lane>(op(total, c));
        total = op(total, d);
        y[i + 3] = static_cast<Lane>(total);
    }
    for (Sum part = Op::kIdentity; i < n; ++i) {
        part = op(part, static_cast<Sum>(x[i]));
        y[i] = static_cast<Lane>(op(total, part));
    }
}

template <class Lane, class Sum, class Op>
void scan_row(Op op, const void* x, void* y, DType dtype, std::int64_t x_step, std::int64_t y_step,
              std::int64_t n) {
    Sum total = Op::kIdentity;
    if (is_lanes<Lane>(dtype, x_step, n) && is_lanes<Lane>(dtype, y_step, n))
        return scan_block(op, static_cast<const Lane*>(x), static_cast<Lane*>(y), n, total);
    alignas(64) Lane from[kBlock], to[kBlock];
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, n - begin);
        void* const out = at(y, dtype, begin * y_step);
        Lane* const lanes = is_lanes<Lane>(dtype, y_step, count) ? static_cast<Lane*>(out) : to;
        scan_block(op, load_lanes(at(x, dtype, begin * x_step), dtype, x_step, count, from), lanes,
                   count, total);
        store_lanes(lanes, out, dtype, y_step, count);
    }
}

// The strides of x or y: from an element to the next element in its row, and from a row to the next
// row.
struct Steps {
    std::int64_t element, row;
};

// Processes `rows` rows together. rows is at most kBlock.
template <class Lane, class Sum, class Op>
void scan_side_by_side(Op op, const void* x, void* y, DType dtype, Steps x_steps, Steps y_steps,
                       std::int64_t n, std::int64_t rows) {
    alignas(64) Lane from[kBlock], to[kBlock];
    alignas(64) Sum total[kBlock], part[kBlock];
    std::fill_n(total, rows, Sum{Op::kIdentity});
    std::fill_n(part, rows, Sum{Op::kIdentity});
    for (std::int64_t i = 0; i < n; ++i) {
        const Lane* in =
            load_lanes(at(x, dtype, i * x_steps.element), dtype, x_steps.row, rows, from);
        void* const out = at(y, dtype, i * y_steps.element);
        Lane* const lanes = is_lanes<Lane>(dtype, y_steps.row, rows) ? static_cast<Lane*>(out) : to;
        if (i % kGroup == 0) {
            for (std::int64_t r = 0; r < rows; ++r) {
                total[r] = op(total[r], part[r]);
                part[r] = static_cast<Sum>(in[r]);
                lanes[r] = static_cast<Lane>(op(total[r], part[r]));
            }
        } else {
            for (std::int64_t r = 0; r < rows; ++r) {
                part[r] = op(part[r], static_cast<Sum>(in[r]));
                lanes[r] = static_cast<Lane>(op(total[r], part[r]));
            }
        }
        store_lanes(lanes, out, dtype, y_steps.row, rows);
    }
}

template <class Lane, class Sum, class Op>
void scan_rows(Op op, ConstView x, View y) {
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
                scan_row<Lane, Sum>(op, from, to, x.dtype, x_steps.element, y_steps.element, n);
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
            scan_side_by_side<Lane, Sum>(op, from, to, x.dtype, x_steps, y_steps, n, count);
            row += count;
        }
    });
}

template <class Op>
void scan(Op op, ConstView x, View y) {
    if (x.numel() == 0) return;
    if (x.dtype == DType::f64) return scan_rows<double, double>(op, x, y);
    if (x.dtype == DType::f32) return scan_rows<float, double>(op, x, y);
    if (is_half(x.dtype)) return scan_rows<float, float>(op, x, y);
    scan_rows<std::int64_t, std::uint64_t>(op, x, y);  // unsigned numbers wrap around on overflow
}

// The arguments of cumprod_backward as rows of lanes.
template <class Lane>
struct ProductGradient {
    ConstView dy, x, y;
    View dx;
    Rows<4> rows;

    ProductGradient(ConstView dy_, ConstView x_, ConstView y_, View dx_)
        : dy(dy_), x(x_), y(y_), dx(dx_), rows({dy, x, y, dx}) {}

    // Processes a row in blocks, from its end to its beginning.
    void row(std::int64_t number) const {
        const auto offset = rows.offsets(number);
        alignas(64) Lane buffers[4][kBlock];
        double suffix = 0, next = 0;
        for (std::int64_t end = x.back(1); end > 0;) {
            const std::int64_t begin = std::max<std::int64_t>(0, end - kBlock), n = end - begin;
            const auto load = [&](ConstView v, int k) {
                const std::int64_t step = v.back_stride(1);
                return load_lanes(at(v.data, v.dtype, offset[k] + begin * step), v.dtype, step, n,
                                  buffers[k]);
            };
            const Lane *const g = load(dy, 0), *const in = load(x, 1), *const out = load(y, 2);
            Lane before = 1;
            if (begin > 0) {
                const std::int64_t step = y.back_stride(1);
                before = *load_lanes(at(y.data, y.dtype, offset[2] + (begin - 1) * step), y.dtype,
                                     step, 1, buffers[3]);
            }
            Lane* const result = buffers[3];
            for (std::int64_t i = n - 1; i >= 0; --i) {
                suffix = static_cast<double>(g[i]) + next * suffix;
                next = static_cast<double>(in[i]);
                result[i] =
                    static_cast<Lane>(static_cast<double>(i > 0 ? out[i - 1] : before) * suffix);
            }
            const std::int64_t step = dx.back_stride(1);
            store_lanes(result, at(dx.data, dx.dtype, offset[3] + begin * step), dx.dtype, step, n);
            end = begin;
        }
    }
};

template <class Lane>
bool is_nan([[maybe_unused]] Lane x) {
    if constexpr (std::is_floating_point_v<Lane>) return std::isnan(x);
    return false;
}

// The pointers and strides of one row of cumulative_extreme().
struct ExtremesOfRow {
    bool largest;
    DType dtype;
    std::int64_t n;
    const void* x;
    void* y;
    std::int64_t* index;
    std::int64_t x_step, y_step, index_step;

    template <class Lane>
    void compute() const {
        alignas(64) Lane from[kBlock], to[kBlock];
        Lane best = {};
        std::int64_t position = 0;
        for (std::int64_t begin = 0; begin < n; begin += kBlock) {
            const std::int64_t count = std::min(kBlock, n - begin);
            const Lane* in = load_lanes(at(x, dtype, begin * x_step), dtype, x_step, count, from);
            if (begin == 0) best = in[0];
            for (std::int64_t i = 0; i < count; ++i) {
                // A comparison with NaN is false, so only another NaN replaces it.
                if ((largest ? in[i] >= best : in[i] <= best) || is_nan(in[i]))
                    best = in[i], position = begin + i;
                to[i] = best;
                index[(begin + i) * index_step] = position;
            }
            store_lanes(to, at(y, dtype, begin * y_step), dtype, y_step, count);
        }
    }
};

template <class Lane>
void extremes_of_rows(bool largest, ConstView x, View y, View index) {
    const Rows<3> rows({x, y, index});
    const std::int64_t n = x.back(1), per_task = (kTask + n - 1) / n;
    parallel_ranges(rows.count(), per_task, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row) {
            const auto offset = rows.offsets(row);
            ExtremesOfRow{.largest = largest,
                          .dtype = x.dtype,
                          .n = n,
                          .x = at(x.data, x.dtype, offset[0]),
                          .y = at(y.data, y.dtype, offset[1]),
                          .index = index.as<std::int64_t>() + offset[2],
                          .x_step = x.back_stride(1),
                          .y_step = y.back_stride(1),
                          .index_step = index.back_stride(1)}
                .template compute<Lane>();
        }
    });
}

}  // namespace

void cumsum(Cpu&, ConstView x, View y) { scan(Plus(), x, y); }
void cumprod(Cpu&, ConstView x, View y) { scan(Times(), x, y); }

void cumprod_backward(Cpu&, ConstView dy, ConstView x, ConstView y, View dx) {
    if (x.numel() == 0) return;
    visit_f32_f64(lane_dtype(x.dtype), [&]<class Lane>() {
        const ProductGradient<Lane> gradient(dy, x, y, dx);
        const std::int64_t per_task = (kTask + x.back(1) - 1) / x.back(1);
        parallel_ranges(gradient.rows.count(), per_task, [&](auto first, auto last) {
            for (std::int64_t row = first; row < last; ++row) gradient.row(row);
        });
    });
}

void cumulative_extreme(Cpu&, bool largest, ConstView x, View y, View index) {
    if (x.numel() == 0) return;
    if (x.dtype == DType::f64) return extremes_of_rows<double>(largest, x, y, index);
    if (is_floating(x.dtype)) return extremes_of_rows<float>(largest, x, y, index);
    extremes_of_rows<std::int64_t>(largest, x, y, index);
}

}  // namespace axle::kernels
