#include "nn/generation/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "nn/evaluation_scope.h"
#include "nn/generation/beam_search.h"
#include "nn/generation/next_token.h"

namespace axle::nn {
namespace {

void check_options(const GenerateOptions& options) {
    const auto fail = [](const char* name, const char* range, auto value) {
        throw ValueError(str("generate: ", name, " must be ", range, ": ", value));
    };
    if (!(options.temperature >= 0)) fail("temperature", "at least 0", options.temperature);
    if (options.top_k < 0) fail("top_k", "at least 0", options.top_k);
    if (!(options.top_p > 0 && options.top_p <= 1)) fail("top_p", "in (0, 1]", options.top_p);
    if (!(options.min_p >= 0 && options.min_p <= 1)) fail("min_p", "in [0, 1]", options.min_p);
    if (!(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty)))
        fail("repetition_penalty", "positive and finite", options.repetition_penalty);
    if (!std::isfinite(options.length_penalty))
        fail("length_penalty", "finite", options.length_penalty);
    constexpr std::int64_t kMaxBeams = 65536;
    if (options.num_beams < 1 || options.num_beams > kMaxBeams)
        fail("num_beams", "from 1 to 65536", options.num_beams);
    if (options.num_beams == 1) return;
    if (options.temperature != 0 && options.temperature != 1)
        fail("temperature", "0 or 1 with beam search", options.temperature);
    if (options.top_k != 0) fail("top_k", "0 with beam search", options.top_k);
    if (options.top_p != 1) fail("top_p", "1 with beam search", options.top_p);
    if (options.min_p != 0) fail("min_p", "0 with beam search", options.min_p);
    if (options.on_token) fail("on_token", "empty with beam search", "it is set");
}

void check_prompts(const std::vector<TokenIds>& prompts, std::int64_t count) {
    if (count < 0) throw ValueError(str("generate: count must not be negative: ", count));
    if (prompts.empty()) throw ValueError("generate: there must be at least one prompt: none");
    for (std::size_t i = 0; i < prompts.size(); ++i)
        if (prompts[i].empty())
            throw ValueError(str("generate: a prompt must contain at least one token: prompts[", i,
                                 "] of ", prompts.size(), " is empty"));
}

Device device_of(const Module& model) {
    const std::vector<Tensor> parameters = model.parameters();
    // The parameters of other stages of a pipeline are on the meta device.
    const auto own = std::ranges::find_if(
        parameters, [](const Tensor& parameter) { return !parameter.device().is_meta(); });
    return own == parameters.end() ? Device::cpu() : own->device();
}

// Appends tokens to all sequences until each of them has ended or has `count` new tokens.
void extend(Decoding& decoding, std::vector<TokenIds>& sequences, std::int64_t count,
            const GenerateOptions& options) {
    const auto continues = [&](std::int64_t sequence, std::int64_t token) {
        const bool is_wanted = !options.on_token || options.on_token(sequence, token);
        return is_wanted &&
               std::ranges::find(options.eos_token_id, token) == options.eos_token_id.end();
    };
    std::vector<std::int64_t> running(sequences.size());  // indices of sequences without an end
    std::iota(running.begin(), running.end(), 0);
    for (std::int64_t step = 0; step < count; ++step) {
        std::vector<TokenIds> rows;
        rows.reserve(running.size());
        for (const std::int64_t i : running) rows.push_back(sequences[static_cast<std::size_t>(i)]);
        const TokenIds tokens =
            next_tokens(penalized(decoding.logits(rows), rows, options), options);
        std::vector<std::int64_t> kept, still_running;
        for (std::size_t row = 0; row < running.size(); ++row) {
            const std::int64_t sequence = running[row];
            sequences[static_cast<std::size_t>(sequence)].push_back(tokens[row]);
            if (!continues(sequence, tokens[row])) continue;
            kept.push_back(static_cast<std::int64_t>(row));
            still_running.push_back(sequence);
        }
        if (kept.empty()) return;
        if (kept.size() < running.size()) decoding.select(kept);
        running = std::move(still_running);
    }
}

}  // namespace

std::vector<TokenIds> generate(Module& model, const DecoderFunctions& decoder,
                               std::vector<TokenIds> prompts, std::int64_t count,
                               const GenerateOptions& options) {
    check_options(options);
    check_prompts(prompts, count);
    if (count == 0) return prompts;
    const NoGrad no_grad;
    const EvaluationScope evaluating("generate", model);
    const Device device = device_of(model);
    if (options.num_beams > 1) {
        for (TokenIds& prompt : prompts) {
            Decoding decoding(decoder, device, options.use_cache);
            prompt = beam_search(decoding, prompt, count, options);
        }
        return prompts;
    }
    Decoding decoding(decoder, device, options.use_cache);
    extend(decoding, prompts, count, options);
    return prompts;
}

TokenIds generate(Module& model, const std::function<Tensor(const Tensor& ids)>& logits,
                  std::int64_t longest, TokenIds ids, std::int64_t count,
                  const GenerateOptions& options) {
    const DecoderFunctions decoder{
        .logits = [&](const Tensor& window, const Tensor&,
                      const DecoderFunctions::LastTokens& last) { return last(logits(window)); },
        .longest = longest};
    GenerateOptions without_cache = options;
    without_cache.use_cache = false;
    return generate(model, decoder, {std::move(ids)}, count, without_cache).front();
}

}  // namespace axle::nn
