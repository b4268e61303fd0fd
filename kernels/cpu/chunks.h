// Splits the work of kernels over tables of tensors into chunks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/thread_pool.h"

namespace axle::kernels {

// The number of elements per task: small enough to balance the load, large enough to hide the cost
// of starting a task.
inline constexpr std::int64_t kChunk = 32768;

// Returns the number of elements in all rows of a table.
template <class Row>
std::int64_t total(std::span<const Row> rows) {
    return rows.empty() ? 0 : rows.back().begin + rows.back().numel;
}

template <class Row>
std::int64_t chunk_count(std::span<const Row> rows) {
    return (total(rows) + kChunk - 1) / kChunk;
}

// Splits the concatenated table into chunks and calls body(chunk, row, offset, n) for the part of
// each row in a chunk. Chunks run in parallel; the parts of one chunk are processed in order.
template <class Row, class Body>
void for_each_stretch(std::span<const Row> rows, Body&& body) {
    const std::int64_t elements = total(rows);
    parallel(chunk_count(rows), [&](std::int64_t chunk) {
        std::int64_t at = chunk * kChunk;
        const std::int64_t end = std::min(at + kChunk, elements);
        auto row = std::upper_bound(rows.begin(), rows.end(), at,
                                    [](std::int64_t i, const Row& r) { return i < r.begin; });
        for (--row; at < end; ++row) {
            const std::int64_t n = std::min(end, row->begin + row->numel) - at;
            if (n > 0) body(chunk, *row, at - row->begin, n);
            at += n;
        }
    });
}

}  // namespace axle::kernels
