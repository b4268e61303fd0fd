// Top-k selection. Each row is read once, one block at a time. Candidates are kept in a buffer of
// at least 2k elements that is reduced to k elements when it is full. If a row is in random order,
// most elements need only one comparison.
#include "kernels/ops/sort.h"

#include <algorithm>

#include "kernels/cpu/index/select.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/rows.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

constexpr std::int64_t kTask = 32768;
constexpr std::int64_t kMaxTasks = 64;  // maximum number, to limit scratch memory

// Returns the k largest (or smallest) of a row's n elements, best first. The result is in `buffer`.
template <class Lane>
const Keyed* best_of_row(bool largest, const void* x, DType dtype, std::int64_t stride,
                         std::int64_t n, std::int64_t k, Keyed* buffer) {
    BestK best(k, buffer);
    const std::uint64_t flip = largest ? 0 : UINT64_MAX;
    alignas(64) Lane block[kBlock];
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, n - begin);
        const Lane* lanes = load_lanes(at(x, dtype, begin * stride), dtype, stride, count, block);
        for (std::int64_t i = 0; i < count; ++i) best.push(key_of(lanes[i]) ^ flip, begin + i);
    }
    return best.finish();
}

template <class Lane>
void topk_rows(Cpu& on, bool largest, ConstView x, View values, View indices) {
    const Rows<3> rows({x, values, indices});
    const std::int64_t n = x.back(1), k = values.back(1), stride = x.back_stride(1);
    const std::int64_t grain =
        std::max((rows.count() + kMaxTasks - 1) / kMaxTasks, (kTask + n - 1) / n);
    const std::int64_t tasks = (rows.count() + grain - 1) / grain;
    Scratch scratch(on);
    Keyed* buffers = scratch.take<Keyed>(tasks * BestK::buffer_size(k));
    parallel_ranges(rows.count(), grain, [&](std::int64_t first, std::int64_t last) {
        Keyed* buffer = buffers + first / grain * BestK::buffer_size(k);
        for (std::int64_t row = first; row < last; ++row) {
            const auto offset = rows.offsets(row);
            const void* from = at(x.data, x.dtype, offset[0]);
            const Keyed* best = best_of_row<Lane>(largest, from, x.dtype, stride, n, k, buffer);
            for (std::int64_t i = 0; i < k; ++i) {
                Lane one;
                const Lane* value =
                    load_lanes(at(from, x.dtype, best[i].index * stride), x.dtype, 1, 1, &one);
                store_lanes(value,
                            at(values.data, values.dtype, offset[1] + i * values.back_stride(1)),
                            values.dtype, 1, 1);
                indices.as<std::int64_t>()[offset[2] + i * indices.back_stride(1)] = best[i].index;
            }
        }
    });
}

}  // namespace

void topk(Cpu& on, bool largest, ConstView x, View values, View indices) {
    if (values.numel() == 0) return;
    if (x.dtype == DType::f64) return topk_rows<double>(on, largest, x, values, indices);
    if (is_floating(x.dtype)) return topk_rows<float>(on, largest, x, values, indices);
    topk_rows<std::int64_t>(on, largest, x, values, indices);
}

}  // namespace axle::kernels
