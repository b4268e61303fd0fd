// Column sums, which are the gradient of a bias, and products with the row sums of their first
// operand. x is read once, row by row, into partial sums of at most 512 rows each, which also
// limits the rounding error. The partial sums are added in order. The split depends on the shape
// only.
#include <algorithm>
#include <utility>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

constexpr std::int64_t kMaxColumns = 2048;

template <class T>
void run(Cpu& on, const ConstView& x, const View& y) {
    const std::int64_t rows = x.back(2), columns = x.back(1);
    if (columns == 0) return;
    const std::int64_t width = std::min(columns, kMaxColumns);
    const std::int64_t height = std::clamp<std::int64_t>(32768 / width, 16, 512);
    const std::int64_t parts = std::max<std::int64_t>(1, divide_up(rows, height));
    const std::int64_t blocks = divide_up(columns, width);
    const std::int64_t slots = slots_for(parts * blocks, 1);

    Scratch scratch(on);
    T* const sums = scratch.take<T>(parts * columns);
    T* const buffers = scratch.take<T>(slots * 4 * width);
    std::fill(sums, sums + parts * columns, T(0));
    constexpr T kOnes[] = {1, 1, 1, 1};
    parallel_slots(parts * blocks, 1, slots, [&](std::int64_t task, std::int64_t slot) {
        const std::int64_t part = task / blocks, begin = task % blocks * width;
        const std::int64_t n = std::min(width, columns - begin);
        T* const sum = sums + part * columns + begin;
        T* const buffer = buffers + slot * 4 * width;
        const auto line = [&](std::int64_t i, std::int64_t r) {
            const std::int64_t start = (i + r) * x.back_stride(2) + begin * x.back_stride(1);
            return load_lanes<T>(at(x.data, x.dtype, start), x.dtype, x.back_stride(1), n,
                                 buffer + r * width);
        };
        const std::int64_t end = std::min(rows, (part + 1) * height);
        std::int64_t i = part * height;
        for (; i + 4 <= end; i += 4) {
            const T* const lines[] = {line(i, 0), line(i, 1), line(i, 2), line(i, 3)};
            gemm_kernels<T>().add_rows[0](lines, 0, kOnes, 0, n, sum, 0);
        }
        for (; i < end; ++i) {
            const T* rest = line(i, 0);
            for (std::int64_t j = 0; j < n; ++j) sum[j] += rest[j];
        }
    });
    for (std::int64_t part = 1; part < parts; ++part)
        for (std::int64_t j = 0; j < columns; ++j) sums[j] += sums[part * columns + j];
    store_lanes<T>(sums, y.data, y.dtype, y.back_stride(1), columns);
}

}  // namespace

void column_sum(Cpu& on, ConstView x, View y) {
    if (x.dtype == DType::f64) return run<double>(on, x, y);
    run<float>(on, x, y);
}

void matmul_row_sum(Cpu& on, ConstView a, ConstView b, View c, View row_sum) {
    const auto transpose = [](auto x) {
        std::swap(x.shape[0], x.shape[1]);
        std::swap(x.stride[0], x.stride[1]);
        return x;
    };
    const bool by_columns = c.stride[0] == 1 && c.stride[1] != 1;
    if (by_columns)
        matmul(on, transpose(b), transpose(a), transpose(c), {.bypasses_caches = true});
    else
        matmul(on, a, b, c, {.bypasses_caches = true});
    column_sum(on, transpose(a), row_sum);
}

}  // namespace axle::kernels
