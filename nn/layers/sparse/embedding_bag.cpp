#include "nn/layers/sparse/embedding_bag.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "nn/init.h"

namespace axle::nn {
namespace {

std::vector<std::int64_t> host_values(const Tensor& t) {
    const std::vector<double> values = t.to_vector();
    return {values.begin(), values.end()};
}

// Throws ValueError if the offsets of n ids are invalid.
void check_offsets(const std::vector<std::int64_t>& offsets, std::int64_t n) {
    if (!offsets.empty() && offsets[0] != 0)
        throw ValueError(str("EmbeddingBag: offsets must begin with 0: the first is ", offsets[0]));
    for (std::size_t i = 0; i < offsets.size(); ++i)
        if (offsets[i] > n || (i > 0 && offsets[i] < offsets[i - 1]))
            throw ValueError(
                str("EmbeddingBag: offsets must not decrease or exceed the number of ids ", n,
                    ": offset ", i, " is ", offsets[i]));
}

// Returns the result for ids [bags, n]. Some ids can be padding.
Tensor of_rows(const Tensor& ids, const Tensor& weight, const Tensor& weights,
               const EmbeddingBagOptions& options) {
    Tensor rows = embedding(ids, weight, options.padding_idx);  // [bags, n, width]
    Tensor skipped;
    if (options.padding_idx) skipped = eq(ids, *options.padding_idx);
    if (options.mode == BagMode::max) {
        if (ids.size(1) == 0) return sum(rows, {1});
        if (!skipped.defined()) return rows.max(1).first;
        constexpr double kLowest = -std::numeric_limits<double>::infinity();
        const Tensor largest = masked_fill(rows, skipped.unsqueeze(-1), kLowest).max(1).first;
        const Tensor is_empty = eq(sum(ne(ids, *options.padding_idx), {1}, true), 0);
        return masked_fill(largest, is_empty, 0);
    }
    const DType dtype = rows.dtype();
    if (is_half(dtype)) rows = to(rows, f32);  // sums and counts in 16 bits would be rounded
    if (skipped.defined()) rows = masked_fill(rows, skipped.unsqueeze(-1), 0);
    if (weights.defined()) rows = rows * weights.unsqueeze(-1);
    const Tensor total = sum(rows, {1});
    if (options.mode == BagMode::sum) return to(total, dtype);
    if (!skipped.defined()) return to(total / std::max<std::int64_t>(1, ids.size(1)), dtype);
    const Tensor count = sum(ne(ids, *options.padding_idx), {1}, true);
    return to(total / clamp(count, 1, {}).to(total.dtype()), dtype);
}

// Returns the result for ids [n] and the offsets of bags. Throws ValueError if the offsets are
// invalid; if they are on a GPU, only in the mode max.
Tensor of_offsets(const Tensor& ids, const Tensor& weight, Tensor offsets, const Tensor& weights,
                  const EmbeddingBagOptions& options) {
    const std::int64_t n = ids.size(0), bags = offsets.size(0), width = weight.size(1);
    if (options.mode == BagMode::max) {
        // All bags get the length of the longest bag. They are filled with row n, which is padding.
        const std::vector<std::int64_t> starts = host_values(offsets);
        check_offsets(starts, n);
        const auto end = [&](std::size_t i) { return i + 1 < starts.size() ? starts[i + 1] : n; };
        std::int64_t longest = 0;
        for (std::size_t i = 0; i < starts.size(); ++i)
            longest = std::max(longest, end(i) - starts[i]);
        std::vector<std::int64_t> places;
        for (std::size_t i = 0; i < starts.size(); ++i)
            for (std::int64_t j = 0; j < longest; ++j)
                places.push_back(starts[i] + j < end(i) ? starts[i] + j : n);
        const Tensor index = tensor(places, {bags * longest}).to(ids.device());
        if (longest == 0) return zeros({bags, width}, {weight.dtype(), weight.device()});
        const Tensor rows = embedding(ids, weight, options.padding_idx);
        constexpr double kLowest = -std::numeric_limits<double>::infinity();
        Tensor kept = rows;
        if (options.padding_idx)
            kept = masked_fill(rows, eq(ids, *options.padding_idx).unsqueeze(-1), kLowest);
        const Tensor padding = full({1, width}, kLowest, {rows.dtype(), rows.device()});
        const Tensor largest = index_select(cat({kept, padding}), 0, index)
                                   .reshape({bags, longest, width})
                                   .max(1)
                                   .first;
        return masked_fill(largest, eq(largest, kLowest), 0);
    }
    if (!offsets.device().is_cuda() && !offsets.device().is_meta())
        check_offsets(host_values(offsets), n);
    // bag[i] is the number of offsets up to position i, minus 1. Position n of `begun` is for empty
    // bags at the end.
    offsets = offsets.to(i64);
    const Tensor one = ones({bags}, {i64, ids.device()});
    const Tensor begun = scatter_add(zeros({n + 1}, {i64, ids.device()}), 0, offsets, one);
    const Tensor bag = cumsum(begun, 0).narrow(0, 0, n) - 1;
    Tensor rows = embedding(ids, weight, options.padding_idx);
    const DType dtype = rows.dtype();
    if (is_half(dtype)) rows = to(rows, f32);
    const Tensor counted = options.padding_idx ? ne(ids, *options.padding_idx) : Tensor();
    if (counted.defined()) rows = masked_fill(rows, logical_not(counted).unsqueeze(-1), 0);
    if (weights.defined()) rows = rows * weights.unsqueeze(-1);
    const Tensor total = scatter_add(zeros({bags, width}, {rows.dtype(), rows.device()}), 0,
                                     bag.unsqueeze(1).expand({n, width}), rows);
    if (options.mode == BagMode::sum) return to(total, dtype);
    const Tensor each =
        counted.defined() ? counted.to(rows.dtype()) : ones({n}, {rows.dtype(), rows.device()});
    const Tensor count = scatter_add(zeros({bags}, {rows.dtype(), rows.device()}), 0, bag, each);
    return to(total / clamp(count, 1, {}).unsqueeze(1), dtype);
}

}  // namespace

EmbeddingBag::EmbeddingBag(std::int64_t rows, std::int64_t width, EmbeddingBagOptions options)
    : options_(options) {
    if (rows < 1 || width < 1)
        throw ValueError(
            str("EmbeddingBag: sizes must be positive: rows ", rows, ", width ", width));
    const auto padding = options.padding_idx;
    if (padding && (*padding < 0 || *padding >= rows))
        throw IndexError(str("EmbeddingBag: padding_idx must be in [0, ", rows, "): ", *padding));
    weight = init::parameter({rows, width});
    init::normal_(weight);
    if (!padding) return;
    const NoGrad no_grad;
    Tensor row = weight.select(0, *padding);
    init::zeros_(row);
}

Tensor embedding_bag(const Tensor& ids, const Tensor& weight, const Tensor& offsets,
                     const Tensor& per_sample_weights, const EmbeddingBagOptions& options) {
    check_device("EmbeddingBag", {&ids, &weight});
    check_index_dtype("EmbeddingBag", ids, "ids");
    check_floating("EmbeddingBag", weight, "weight");
    if (weight.dim() != 2)
        throw ShapeError(str("EmbeddingBag: weight must be [rows, width]: it is ", weight.shape()));
    if (per_sample_weights.defined()) {
        if (options.mode != BagMode::sum)
            throw UsageError(str("EmbeddingBag: per_sample_weights need the mode sum: the mode is ",
                                 options.mode == BagMode::mean ? "mean" : "max"));
        if (per_sample_weights.shape() != ids.shape())
            throw ShapeError(str("EmbeddingBag: per_sample_weights must be ", ids.shape(),
                                 ", as ids: it is ", per_sample_weights.shape()));
    }
    if (ids.dim() == 2) {
        if (offsets.defined())
            throw UsageError(
                "EmbeddingBag: offsets must not be given for 2-d ids, whose rows are "
                "the bags");
        return of_rows(ids, weight, per_sample_weights, options);
    }
    if (ids.dim() != 1)
        throw ShapeError(
            str("EmbeddingBag: ids must have one or two dimensions: they are ", ids.shape()));
    if (!offsets.defined())
        throw UsageError(
            str("EmbeddingBag: 1-d ids need offsets: ids are ", ids.shape(), ", without offsets"));
    check_index_dtype("EmbeddingBag", offsets, "offsets");
    const std::int64_t extra = options.include_last_offset ? 1 : 0;
    if (offsets.dim() != 1 || offsets.size(0) < extra)
        throw ShapeError(str("EmbeddingBag: offsets must have one dimension",
                             extra == 1 ? " and at least one element" : "", ": they are ",
                             offsets.shape()));
    const Tensor y = of_offsets(ids, weight, offsets, per_sample_weights, options);
    return extra == 0 ? y : y.narrow(0, 0, y.size(0) - 1);  // drops the bag after the last offset
}

}  // namespace axle::nn
