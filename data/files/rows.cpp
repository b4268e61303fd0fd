#include "data/files/rows.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/ops.h"

namespace axle::data {
namespace {

// Copies rows of N bytes. Prefetches rows in advance, because their positions in memory are
// scattered.
template <std::size_t N>
void copy_short_rows(const std::byte* from, std::byte* to, std::span<const std::int64_t> indices) {
    constexpr std::size_t kPrefetchDistance = 16;
    const auto row = [&](std::size_t i) { return from + static_cast<std::size_t>(indices[i]) * N; };
    for (std::size_t i = 0; i < indices.size(); ++i, to += N) {
        if (i + kPrefetchDistance < indices.size()) __builtin_prefetch(row(i + kPrefetchDistance));
        std::memcpy(to, row(i), N);
    }
}

void copy_rows(const std::byte* from, std::byte* to, std::size_t bytes,
               std::span<const std::int64_t> indices) {
    switch (bytes) {
        case 1:
            return copy_short_rows<1>(from, to, indices);
        case 4:
            return copy_short_rows<4>(from, to, indices);
        case 8:
            return copy_short_rows<8>(from, to, indices);
        case 16:
            return copy_short_rows<16>(from, to, indices);
        case 32:
            return copy_short_rows<32>(from, to, indices);
        case 64:
            return copy_short_rows<64>(from, to, indices);
        default:
            for (const std::int64_t index : indices) {
                std::memcpy(to, from + static_cast<std::size_t>(index) * bytes, bytes);
                to += bytes;
            }
    }
}

}  // namespace

// Copies complete rows as bytes if possible. (index_select() copies single elements.)
Tensor select_rows(const Tensor& t, std::span<const std::int64_t> indices) {
    const auto count = static_cast<std::int64_t>(indices.size());
    if (!t.device().is_cpu() || !t.is_contiguous() || t.requires_grad()) {
        Tensor rows = empty({count}, {.dtype = i64, .device = Device::cpu()});
        std::copy(indices.begin(), indices.end(), rows.data<std::int64_t>());
        return index_select(t, 0, rows.to(t.device()));
    }
    Shape shape = t.shape();
    shape[0] = count;
    Tensor batch = empty(shape, {.dtype = t.dtype()});
    if (batch.numel() == 0) return batch;
    const auto bytes = static_cast<std::size_t>(batch.numel() / count * size_of(t.dtype()));
    copy_rows(static_cast<const std::byte*>(t.raw_data()),
              static_cast<std::byte*>(batch.raw_data()), bytes, indices);
    return batch;
}

}  // namespace axle::data
