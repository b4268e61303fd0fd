#include "nn/generation/key_value_cache.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/indexing.h"

namespace axle::nn {

namespace {

// Returns a tensor without values, with the other sizes, the dtype and the device of x.
Tensor empty_like_with(const Tensor& x, std::int64_t sequences, std::int64_t capacity) {
    Shape shape = x.shape();
    shape[0] = sequences, shape[1] = capacity;
    return Tensor::empty(shape, {.dtype = x.dtype(), .device = x.device()});
}

[[noreturn]] void throw_changed(std::size_t layer, std::size_t layers, const std::string& what) {
    throw UsageError(str("generate: use_cache must be false for a model whose calls differ: ", what,
                         " in layer ", layer, " of ", layers));
}

}  // namespace

void KeyValueCache::begin(std::vector<std::int64_t> positions, Device device) {
    layer_ = 0;
    indices_ = {}, mask_ = {};
    positions_ = std::move(positions);
    if (positions_.empty()) return;
    const auto [least, most] = std::ranges::minmax(positions_);
    length_ = most + 1;
    if (least == most) return;
    indices_ = tensor(positions_, {std::ssize(positions_)}).to(device);
    mask_ = le(arange(length_, {.dtype = i64, .device = device}), indices_.unsqueeze(1))
                .reshape({std::ssize(positions_), 1, 1, length_});
}

void KeyValueCache::select(const std::vector<std::int64_t>& sequences) {
    std::vector<std::int64_t> unchanged(sequences.size());
    std::iota(unchanged.begin(), unchanged.end(), 0);
    for (Layer& layer : layers_) {
        if (sequences == unchanged && layer.keys.size(0) == std::ssize(sequences)) continue;
        const Tensor rows = tensor(sequences, {std::ssize(sequences)}).to(layer.keys.device());
        for (Tensor* x : {&layer.keys, &layer.values}) {
            Tensor kept = empty_like_with(*x, std::ssize(sequences), x->size(1));
            kept.narrow(1, 0, length_).copy_(index_select(x->narrow(1, 0, length_), 0, rows));
            *x = kept;
        }
    }
}

void KeyValueCache::check_complete() const {
    if (layer_ != layers_.size()) throw_changed(layer_, layers_.size(), "no attention");
}

// Stores x [B, heads, T, D].
void KeyValueCache::store(Tensor& rows, const Tensor& x) const {
    const Tensor by_time = x.transpose(1, 2);
    if (rows.size(1) < length_) {
        Tensor larger = empty_like_with(rows, rows.size(0), 2 * length_);
        larger.narrow(1, 0, rows.size(1)).copy_(rows);
        rows = larger;
    }
    if (!indices_.defined()) {
        const std::int64_t first = positions_.empty() ? 0 : positions_.front();
        rows.narrow(1, first, by_time.size(1)).copy_(by_time);
        return;
    }
    const Tensor sequences = arange(x.size(0), {.dtype = i64, .device = x.device()});
    rows.index_put_({sequences, indices_}, by_time.select(1, 0));
}

Tensor KeyValueCache::attend(const Tensor& q, const Tensor& k, const Tensor& v,
                             const AttentionOptions& options) {
    const bool is_first = positions_.empty();
    if (is_first) {
        length_ = k.size(2);
        layers_.push_back({.keys = empty_like_with(k.transpose(1, 2), k.size(0), length_),
                           .values = empty_like_with(v.transpose(1, 2), v.size(0), length_)});
    } else {
        if (layer_ >= layers_.size()) throw_changed(layer_, layers_.size(), "one more attention");
        if (k.size(2) != 1) throw_changed(layer_, layers_.size(), str(k.size(2), " tokens"));
        if (options.mask.defined()) throw_changed(layer_, layers_.size(), "a mask");
    }
    Layer& layer = layers_[layer_++];
    store(layer.keys, k);
    store(layer.values, v);
    if (is_first) return scaled_dot_product_attention(q, k, v, options);
    const Tensor keys = layer.keys.narrow(1, 0, length_).transpose(1, 2);
    const Tensor values = layer.values.narrow(1, 0, length_).transpose(1, 2);
    return scaled_dot_product_attention(q, keys, values, {.mask = mask_, .scale = options.scale});
}

std::vector<PositionRange> KeyValueCache::positions(std::int64_t time) const {
    if (!positions_.empty())
        throw UsageError(
            "generate: use_cache must be false for a model that does not use position_ids");
    return {{.begin = 0, .count = time}};
}

}  // namespace axle::nn
