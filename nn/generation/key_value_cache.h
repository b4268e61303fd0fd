// Private to nn/generation: the keys and values of earlier tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/attention/paged_attention.h"
#include "nn/layers/sequence_policy.h"

namespace axle::nn {

// A paged cache (Kwon et al., arXiv:2309.06180). While a ForwardContextGuard holds this policy,
// calls of attention() store their keys and values, and queries attend to all stored keys of their
// sequence. The first call of a model stores whole prompts; each later call stores one token of
// each sequence.
//
// Memory grows by pages, each of which has up to page_size tokens of one sequence. A page has
// memory in every layer. Sequences that select() copies share their pages. If a shared page is not
// full, it is copied when one of its sequences grows. Pages that no sequence uses are used again
// for new tokens.
class KeyValueCache : public SequencePolicy {
  public:
    // Page sizes, in tokens. Devices other than the CPU gather the pages of a layer in each call,
    // which takes a launch for each page.
    static constexpr std::int64_t kCpuPageSize = 64, kOtherPageSize = 256;

    // page_size must be a multiple of 16.
    explicit KeyValueCache(std::int64_t page_size) : page_size_(page_size) {}

    // Begins the first call of the model, for prompts with these numbers of tokens, which begin at
    // position 0. Shorter prompts are padded at the end; keys of the padding are not stored.
    void begin_prompts(const std::vector<std::int64_t>& lengths);
    // Begins a later call of the model, for one more token of each sequence.
    void begin_tokens();
    // Returns whether the first call has stored keys.
    bool has_layers() const { return !layers_.empty(); }
    // Throws UsageError if this call stored the keys of fewer layers than the first call.
    void check_complete() const;
    // Keeps the sequences with these indices, in this order. An index can occur several times.
    void select(const std::vector<std::int64_t>& sequences);

    // Returns the number of pages that sequences use. Shared pages count once.
    std::int64_t used_pages() const;
    // Returns the number of pages that have been created.
    std::int64_t pages() const { return static_cast<std::int64_t>(uses_.size()); }
    // Returns the size of the memory of all pages in all layers, in bytes.
    std::int64_t bytes() const;

    // q, k and v are [B, heads, T, D]; the numbers of heads of q and k can differ. Throws
    // UsageError for a mask in a later call, and if a call has another number of sequences or
    // tokens than begin_...() announced, or a later call another number of layers.
    Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v,
                  const AttentionOptions& options) override;
    // Throws UsageError in later calls, because their sequences can have different lengths: the
    // model must use the given position_ids.
    std::vector<PositionRange> positions(std::int64_t time) const override;
    std::int64_t parts() const override { return 1; }
    Tensor whole_sequences(const Tensor& x) const override { return x; }

  private:
    using Layer = std::vector<KeyValuePage>;  // indexed by page; undefined until keys are stored

    std::int64_t new_page();
    void copy_page(std::int64_t from, std::int64_t to, std::int64_t tokens);
    void store(Layer& layer, const Tensor& k, const Tensor& v) const;

    std::int64_t page_size_;
    bool is_first_call_ = true;
    std::vector<PageTable> sequences_;
    std::vector<std::int64_t> uses_;  // the number of sequences that use each page
    std::vector<std::int64_t> free_;  // the pages with uses_ == 0
    std::vector<Layer> layers_;
    std::size_t layer_ = 0;  // the number of attention() calls in this call of the model
};

}  // namespace axle::nn
