// Datasets whose samples are consecutive numbers, and the rows of a loop over them.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "accel/accelerator.h"
#include "core/ops.h"
#include "data/loading/loader.h"

namespace axle::tests {

using Rows = std::vector<std::int64_t>;

inline data::FunctionDataset numbers(std::int64_t n) {
    return data::from_function(n, [](std::int64_t i) { return Tree(i); });
}

// Returns a stream of the numbers 0 to n - 1. `sized` sets whether their count is known.
inline data::GeneratorDataset stream_of_numbers(std::int64_t n, bool sized = true) {
    return data::from_generator(
        [n](std::int64_t) {
            return [n, i = std::int64_t{0}]() mutable -> std::optional<Tree> {
                if (i == n) return std::nullopt;
                return Tree(i++);
            };
        },
        sized ? std::optional(n) : std::nullopt);
}

// Returns a loader over an iterable or an indexed dataset of the numbers 0 to n - 1; n can be 0.
inline std::unique_ptr<data::DataLoader> loader_of_numbers(std::int64_t n, bool iterable,
                                                           data::LoaderOptions options,
                                                           bool sized = true) {
    options.allow_empty = true;
    if (iterable)
        return std::make_unique<data::DataLoader>(stream_of_numbers(n, sized), std::move(options));
    return std::make_unique<data::DataLoader>(numbers(n), std::move(options));
}

inline Rows rows_of(const Tree& batch) {
    const std::vector<double> values = batch.tensor().to_vector();
    return {values.begin(), values.end()};
}

using Batches = std::vector<Rows>;

// Runs one pass and returns the rows of each batch.
inline Batches pass_of(data::DataLoader& loader) {
    Batches batches;
    for (auto& batch : loader) batches.push_back(rows_of(batch));
    return batches;
}

inline accel::AcceleratorOptions of_group(const std::shared_ptr<dist::ProcessGroup>& group,
                                          accel::DataLoaderConfiguration config = {}) {
    return {.cpu = true, .dataloader_config = config, .process_group = group};
}

inline Rows range(std::int64_t begin, std::int64_t end) {
    Rows rows(static_cast<std::size_t>(std::max<std::int64_t>(end - begin, 0)));
    std::iota(rows.begin(), rows.end(), begin);
    return rows;
}

}  // namespace axle::tests
