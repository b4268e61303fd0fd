// Private to kernels: tables of tensors on a GPU.
//
// A table is a kernel parameter, so it needs no GPU memory and no copy, and a captured graph stores
// it. Longer tables are split into several launches. Rows are split into chunks, which are numbered
// consecutively over all rows of the table. A block finds the row of its chunk by binary search in
// the constant cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/optimizer.h"

namespace axle::kernels {

// CUDA's limit for the parameters of a kernel, in bytes.
inline constexpr std::size_t kMaxParameterBytes = 32764;

template <class Row>
struct Table {
    // The maximum number of rows in a table; 256 bytes are reserved for the other kernel
    // parameters.
    static constexpr int kRows = static_cast<int>((kMaxParameterBytes - 256) / (sizeof(Row) + 4));

    std::int32_t rows = 0;
    std::int32_t chunk = 0;  // elements per chunk
    // The index of the first chunk of each row, then the total number of chunks.
    std::uint32_t first[kRows + 1] = {};
    Row row[kRows] = {};

    AXLE_HOST_DEVICE std::uint32_t chunks() const { return first[rows]; }
};

// The type of a table as a kernel parameter that all threads read without making a copy.
#if defined(__CUDACC__)
#define AXLE_TABLE(Row) const __grid_constant__ Table<Row>
#else
#define AXLE_TABLE(Row) const Table<Row>&
#endif

// Calls f(table) for tables that fit in a launch. Together they contain all rows for which
// wanted(row) is true.
template <class Row, class Wanted, class F>
void for_each_table(std::span<const Row> rows, std::int32_t chunk, Wanted wanted, F&& f) {
    Table<Row> table;
    table.chunk = chunk;
    for (const Row& row : rows) {
        if (!wanted(row)) continue;
        if (table.rows == table.kRows) {
            f(std::as_const(table));
            table.rows = 0;
        }
        const auto chunks = static_cast<std::uint32_t>((row.numel + chunk - 1) / chunk);
        table.row[table.rows] = row;
        table.first[table.rows + 1] = table.first[table.rows] + chunks;
        ++table.rows;
    }
    if (table.rows > 0) f(std::as_const(table));
}

// The elements of a row that are in a chunk.
struct Stretch {
    std::int32_t row;
    std::int64_t from, to;
};

template <class Row>
__device__ inline Stretch stretch_of(const Table<Row>& table, std::uint32_t chunk) {
    std::int32_t low = 0, high = table.rows;  // invariant: first[low] <= chunk < first[high]
    while (high - low > 1) {
        const std::int32_t middle = (low + high) / 2;
        (table.first[middle] <= chunk ? low : high) = middle;
    }
    const std::int64_t from = std::int64_t{chunk - table.first[low]} * table.chunk;
    const std::int64_t rest = table.row[low].numel - from;
    return {low, from, from + (rest < table.chunk ? rest : table.chunk)};
}

}  // namespace axle::kernels
