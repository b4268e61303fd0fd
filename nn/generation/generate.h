// Text generation from a language model, token by token: greedy, by sampling or by beam search.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/module.h"

namespace axle::nn {

// The ids of the tokens of one sequence.
using TokenIds = std::vector<std::int64_t>;

// How the next token is chosen. The rules are applied in this order: repetition_penalty,
// temperature, top_k, top_p, min_p. They have the names and meanings of Transformers.
struct GenerateOptions {
    // Divides the logits; 0 selects the most likely token (greedy). Beam search accepts 0 or 1.
    double temperature = 1;
    std::int64_t top_k = 0;  // samples from the top_k most likely tokens; 0 samples from all tokens
    // Samples from the smallest set of most likely tokens whose probabilities have at least this
    // sum, in (0, 1] (Holtzman et al., arXiv:1904.09751).
    double top_p = 1;
    // Samples from the tokens that are at least min_p times as probable as the most likely token,
    // in [0, 1] (Nguyen et al., arXiv:2407.01082).
    double min_p = 0;
    // Divides positive logits of tokens that the sequence already has by this number, and
    // multiplies negative logits (Keskar et al., arXiv:1909.05858). Must be positive.
    double repetition_penalty = 1;
    // Above 1: beam search with this many beams, up to 65536, which keeps the most probable
    // sequences and is not random. It cannot be combined with top_k, top_p, min_p or on_token.
    std::int64_t num_beams = 1;
    // Beam search divides the log probability of a finished sequence by the length of its new
    // tokens to this power.
    double length_penalty = 1;
    // If true, beam search ends when num_beams sequences are finished. If false, it ends when no
    // running beam can probably become better.
    bool early_stopping = false;
    // A sequence ends after the first new token with one of these ids.
    std::vector<std::int64_t> eos_token_id = {};
    // Keeps the keys and values of attention, so that each step computes one token instead of the
    // whole sequence. Has an effect only on models that call nn::attention()
    // (nn/layers/sequence_policy.h), such as GPT, Llama and Mixtral. The cache grows by pages of 64
    // tokens of one sequence (256 on GPUs). Equal prompts are computed once; they and beams share
    // the pages of their common tokens.
    bool use_cache = true;
    // Called with each new token and the index of its sequence, for example to print a text while
    // it is generated. Returns whether the sequence continues, so that a program can end it at a
    // text of its choice.
    std::function<bool(std::int64_t sequence, std::int64_t token)> on_token = {};
};

// How generate() calls a language model.
struct DecoderFunctions {
    // Maps hidden states [B, T, C] to the hidden states [B, C] of the last tokens.
    using LastTokens = std::function<Tensor(const Tensor& hidden)>;
    // Returns the logits [B, vocabulary] of last(hidden), for the hidden states of ids [B, T]
    // (i64). position_ids [B, T] (i64) are the positions of the tokens, and undefined for 0 to T -
    // 1. A hidden state must depend only on the tokens at the same and at earlier positions, and on
    // the latter only through nn::attention() if use_cache is true: later calls get only the newest
    // token of each sequence.
    std::function<Tensor(const Tensor& ids, const Tensor& position_ids, const LastTokens& last)>
        logits;
    // The largest number of tokens of a sequence that the model accepts. Longer sequences are
    // continued from their last `longest` tokens. The cache of all sequences is then no longer
    // used.
    std::int64_t longest;
};

// Appends up to `count` tokens to each prompt and returns the complete sequences. Prompts may have
// different lengths. The model is in evaluation mode during the call. Random numbers come from the
// default generator (core/random.h). Throws ValueError for an option that is out of range or cannot
// be combined with others, if there is no prompt, if a prompt is empty, or if count is negative.
// Throws UsageError if a model with use_cache ignores position_ids, or calls attention in only some
// of its calls.
std::vector<TokenIds> generate(Module& model, const DecoderFunctions& decoder,
                               std::vector<TokenIds> prompts, std::int64_t count,
                               const GenerateOptions& options = {});

// The same for one sequence and a model that is one function, without a cache. `logits` must map
// ids [B, T] to [B, T, vocabulary]; B is 1, or the number of beams.
TokenIds generate(Module& model, const std::function<Tensor(const Tensor& ids)>& logits,
                  std::int64_t longest, TokenIds ids, std::int64_t count,
                  const GenerateOptions& options = {});

}  // namespace axle::nn
