#include "nn/generation/key_value_cache.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/indexing.h"

namespace axle::nn {

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
            Shape shape = x->shape();
            shape[0] = std::ssize(sequences);
            Tensor kept = Tensor::empty(shape, {.dtype = x->dtype(), .device = x->device()});
            kept.narrow(1, 0, length_).copy_(index_select(x->narrow(1, 0, length_), 0, rows));
            *x = kept;
        }
    }
}

// Stores x [B, heads, T, D].
void KeyValueCache::store(Tensor& rows, const Tensor& x) const {
    const Tensor by_time = x.transpose(1, 2);
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
        const auto memory = [&](const Tensor& x) {
            return Tensor::empty({x.size(0), capacity_, x.size(1), x.size(3)},
                                 {.dtype = x.dtype(), .device = x.device()});
        };
        length_ = k.size(2);
        layers_.push_back({.keys = memory(k), .values = memory(v)});
    } else if (layer_ >= layers_.size() || k.size(2) != 1 || options.mask.defined()) {
        throw UsageError(str("generate: use_cache must be false for a model whose calls differ in ",
                             "layers, or that masks single tokens: layer ", layer_, " of ",
                             layers_.size(), ", ", k.size(2), " tokens"));
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
