#include "nn/generation/decoding.h"

#include <algorithm>
#include <map>

#include "core/ops.h"

namespace axle::nn {

Decoding::Decoding(const DecoderFunctions& decoder, Device device, bool use_cache)
    : decoder_(decoder), device_(device) {
    // A context of this thread changes attention already, for example because processes share the
    // sequences.
    if (use_cache && forward_context() == nullptr)
        cache_ = std::make_shared<KeyValueCache>(device.is_cpu() ? KeyValueCache::kCpuPageSize
                                                                 : KeyValueCache::kOtherPageSize);
}

// Returns the logits at the token last[i] of each row i of ids [n, T].
Tensor Decoding::run(const Tensor& ids, const Tensor& positions,
                     const std::vector<std::int64_t>& last) const {
    const auto of_last = [&](const Tensor& hidden) {
        const auto [least, most] = std::ranges::minmax(last);
        if (least == most) return hidden.select(1, most);
        const Tensor rows = arange(hidden.size(0), {.dtype = i64, .device = hidden.device()});
        const Tensor columns = tensor(last, {std::ssize(last)}).to(hidden.device());
        return hidden.index({rows, columns});
    };
    return decoder_.logits(ids, positions, of_last).to(f32);
}

// Passes each sequence to the model, or its last `longest` tokens if it has more. Shorter sequences
// are padded at the end, which does not change the logits of their tokens.
Tensor Decoding::logits_of_windows(const std::vector<TokenIds>& sequences) const {
    std::int64_t time = 0;
    for (const TokenIds& ids : sequences) time = std::max(time, std::ssize(ids));
    time = std::min(time, decoder_.longest);
    TokenIds padded;
    std::vector<std::int64_t> last;
    for (const TokenIds& ids : sequences) {
        const std::int64_t count = std::min(std::ssize(ids), time);
        padded.insert(padded.end(), ids.end() - count, ids.end());
        padded.insert(padded.end(), static_cast<std::size_t>(time - count), 0);
        last.push_back(count - 1);
    }
    return run(tensor(padded, {std::ssize(sequences), time}).to(device_), {}, last);
}

Tensor Decoding::logits_of_last_tokens(const std::vector<TokenIds>& sequences) const {
    const std::int64_t count = std::ssize(sequences);
    TokenIds tokens;
    std::vector<std::int64_t> positions;
    for (const TokenIds& ids : sequences) {
        tokens.push_back(ids.back());
        positions.push_back(std::ssize(ids) - 1);
    }
    cache_->begin_tokens();
    return run(tensor(tokens, {count, 1}).to(device_), tensor(positions, {count, 1}).to(device_),
               std::vector<std::int64_t>(sequences.size(), 0));
}

// Passes each different prompt to the model once. Equal prompts share the pages of the cache.
Tensor Decoding::logits_of_prompts(const std::vector<TokenIds>& sequences) {
    std::map<TokenIds, std::int64_t> numbers;
    std::vector<TokenIds> prompts;
    std::vector<std::int64_t> lengths, origins;
    for (const TokenIds& ids : sequences) {
        const auto [place, is_new] = numbers.emplace(ids, std::ssize(prompts));
        origins.push_back(place->second);
        if (!is_new) continue;
        prompts.push_back(ids);
        lengths.push_back(std::ssize(ids));
    }
    cache_->begin_prompts(lengths);
    const Tensor result = logits_of_windows(prompts);
    if (prompts.size() == sequences.size()) return result;
    cache_->select(origins);
    return index_select(result, 0, tensor(origins, {std::ssize(origins)}).to(result.device()));
}

Tensor Decoding::logits(const std::vector<TokenIds>& sequences) {
    const bool fits = std::ranges::all_of(
        sequences, [&](const TokenIds& ids) { return std::ssize(ids) <= decoder_.longest; });
    if (!fits) cache_.reset();
    if (cache_ == nullptr) return logits_of_windows(sequences);
    const ForwardContextGuard guard(cache_);
    if (is_filled_) {
        const Tensor result = logits_of_last_tokens(sequences);
        cache_->check_complete();
        return result;
    }
    const Tensor result = logits_of_prompts(sequences);
    is_filled_ = cache_->has_layers();
    if (!is_filled_) cache_.reset();  // the model does not call attention(), or not on this thread
    return result;
}

void Decoding::select(const std::vector<std::int64_t>& sequences) {
    if (cache_ != nullptr) cache_->select(sequences);
}

}  // namespace axle::nn
