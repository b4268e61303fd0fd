#include "nn/generation/key_value_cache.h"

#include <algorithm>
#include <utility>

#include "core/autograd/autocast.h"

namespace axle::nn {

namespace {

[[noreturn]] void throw_changed(std::size_t layer, std::size_t layers, const std::string& what) {
    throw UsageError(str("generate: use_cache must be false for a model whose calls differ: ", what,
                         " in layer ", layer, " of ", layers));
}

std::size_t at(std::int64_t page) { return static_cast<std::size_t>(page); }

// Returns a page of zeros for keys k [B, G, T, D] and values v [B, G, T, E].
KeyValuePage page_for(const Tensor& k, const Tensor& v, std::int64_t size) {
    return {
        .keys = zeros({k.size(1), k.size(3), size}, {.dtype = k.dtype(), .device = k.device()}),
        .values = zeros({v.size(1), size, v.size(3)}, {.dtype = v.dtype(), .device = v.device()})};
}

}  // namespace

std::int64_t KeyValueCache::new_page() {
    if (free_.empty()) {
        uses_.push_back(1);
        return pages() - 1;
    }
    const std::int64_t page = free_.back();
    free_.pop_back();
    uses_[at(page)] = 1;
    return page;
}

// Copies the first tokens of a page in all layers.
void KeyValueCache::copy_page(std::int64_t from, std::int64_t to, std::int64_t tokens) {
    for (Layer& layer : layers_) {
        layer.resize(uses_.size());
        const auto& [keys, values] = layer[at(from)];
        KeyValuePage& copy = layer[at(to)];
        if (!copy.keys.defined())
            copy = page_for(keys.transpose(1, 2).unsqueeze(0), values.unsqueeze(0), page_size_);
        copy.keys.narrow(2, 0, tokens).copy_(keys.narrow(2, 0, tokens));
        copy.values.narrow(1, 0, tokens).copy_(values.narrow(1, 0, tokens));
    }
}

void KeyValueCache::begin_prompts(const std::vector<std::int64_t>& lengths) {
    for (const std::int64_t length : lengths) {
        PageTable sequence{.pages = {}, .length = length};
        for (std::int64_t begin = 0; begin < length; begin += page_size_)
            sequence.pages.push_back(new_page());
        sequences_.push_back(std::move(sequence));
    }
}

void KeyValueCache::begin_tokens() {
    is_first_call_ = false;
    layer_ = 0;
    for (PageTable& sequence : sequences_) {
        const std::int64_t used = sequence.length++ % page_size_;  // tokens of the last page
        if (used == 0) {
            sequence.pages.push_back(new_page());
            continue;
        }
        std::int64_t& last = sequence.pages.back();
        if (uses_[at(last)] == 1) continue;
        const std::int64_t copy = new_page();
        copy_page(last, copy, used);
        --uses_[at(last)];
        last = copy;
    }
}

void KeyValueCache::select(const std::vector<std::int64_t>& sequences) {
    std::vector<PageTable> kept;
    kept.reserve(sequences.size());
    for (const std::int64_t sequence : sequences) {
        kept.push_back(sequences_[static_cast<std::size_t>(sequence)]);
        for (const std::int64_t page : kept.back().pages) ++uses_[at(page)];
    }
    for (const PageTable& sequence : sequences_)
        for (const std::int64_t page : sequence.pages)
            if (--uses_[at(page)] == 0) free_.push_back(page);
    sequences_ = std::move(kept);
}

void KeyValueCache::check_complete() const {
    if (layer_ != layers_.size()) throw_changed(layer_, layers_.size(), "no attention");
}

std::int64_t KeyValueCache::used_pages() const { return pages() - std::ssize(free_); }

std::int64_t KeyValueCache::bytes() const {
    std::int64_t sum = 0;
    for (const Layer& layer : layers_)
        for (const auto& [keys, values] : layer)
            if (keys.defined()) sum += (keys.numel() + values.numel()) * size_of(keys.dtype());
    return sum;
}

// Stores the tokens of this call: all tokens of the prompts, or the last token of each sequence.
void KeyValueCache::store(Layer& layer, const Tensor& k, const Tensor& v) const {
    layer.resize(uses_.size());
    for (std::size_t b = 0; b < sequences_.size(); ++b) {
        const PageTable& sequence = sequences_[b];
        // Keys [G, D, T] and values [G, T, E] of the call, which begin at position `first`.
        const auto row = static_cast<std::int64_t>(b);
        const Tensor keys = k.select(0, row).transpose(1, 2), values = v.select(0, row);
        const std::int64_t first = is_first_call_ ? 0 : sequence.length - 1;
        for (std::int64_t begin = first; begin < sequence.length;) {
            const std::int64_t offset = begin % page_size_;
            const std::int64_t count = std::min(page_size_ - offset, sequence.length - begin);
            KeyValuePage& page = layer[at(sequence.pages[at(begin / page_size_)])];
            if (!page.keys.defined()) page = page_for(k, v, page_size_);
            page.keys.narrow(2, offset, count).copy_(keys.narrow(2, begin - first, count));
            page.values.narrow(1, offset, count).copy_(values.narrow(1, begin - first, count));
            begin += count;
        }
    }
}

Tensor KeyValueCache::attend(const Tensor& q, const Tensor& k, const Tensor& v,
                             const AttentionOptions& options) {
    std::int64_t tokens = 1;
    if (is_first_call_) {
        layers_.emplace_back();
        for (const PageTable& sequence : sequences_) tokens = std::max(tokens, sequence.length);
    } else {
        if (layer_ >= layers_.size()) throw_changed(layer_, layers_.size(), "one more attention");
        if (options.mask.defined()) throw_changed(layer_, layers_.size(), "a mask");
    }
    if (k.size(2) != tokens) throw_changed(layer_, layers_.size(), str(k.size(2), " tokens"));
    if (k.size(0) != std::ssize(sequences_))
        throw_changed(layer_, layers_.size(), str(k.size(0), " sequences"));
    Layer& layer = layers_[layer_++];
    store(layer, autocast(k), autocast(v));
    if (is_first_call_) return scaled_dot_product_attention(q, k, v, options);
    return paged_attention(q, layer, sequences_, options.scale);
}

std::vector<PositionRange> KeyValueCache::positions(std::int64_t time) const {
    if (!is_first_call_)
        throw UsageError(
            "generate: use_cache must be false for a model that does not use position_ids");
    return {{.begin = 0, .count = time}};
}

}  // namespace axle::nn
