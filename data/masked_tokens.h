// MaskedTokensDataset: samples for masked language modeling (Devlin et al., arXiv:1810.04805).
//
//     const data::MaskedTokensDataset masked(
//         texts, {.mask_token_id = 103, .vocab_size = 30522, .seed = 1});
//     data::DataLoader loader(masked, {.batch_size = 16, .shuffle = true, .collate_fn = ...});
#pragma once

#include <cstdint>
#include <memory>

#include "data/dataset.h"

namespace axle::data {

// The names and defaults are those of DataCollatorForLanguageModeling in Transformers.
struct MaskedTokensOptions {
    std::int64_t mask_token_id = -1;  // required
    std::int64_t vocab_size = 0;      // required; random tokens are in [0, vocab_size)
    double mlm_probability = 0.15;    // the probability of selecting a token
    // The probabilities of replacing a selected token by the mask token, and by a random token.
    // Otherwise it stays.
    double mask_replace_prob = 0.8, random_replace_prob = 0.1;
    std::uint64_t seed = 0;
    // Whether the same tokens are selected in all epochs, for example for validation.
    bool is_constant = false;
};

// A dataset that selects random tokens of the samples of another dataset and replaces most of them.
// A model learns to predict the selected tokens from the other tokens of the sample.
//
// The samples of the other dataset are maps with "input_ids", an i64 tensor [T], and optionally
// "special_tokens_mask" [T] (Encoding::special_tokens_mask). Tokens whose mask is not 0 are never
// selected. The samples of this dataset have "labels" in place of "special_tokens_mask": the token
// if it is selected, otherwise -100, which cross_entropy() ignores. Other entries are kept. A short
// sample may have no selected token.
//
// The selected tokens of a sample depend only on the seed, the epoch and the sample's index. The
// epoch is the one that the loader passes to in_epoch(), or 0 without a loader.
class MaskedTokensDataset final : public Dataset {
  public:
    // Throws UsageError if the dataset is null. Throws ValueError unless vocab_size is in [1,
    // 2^31), mask_token_id is in [0, vocab_size), the probabilities are in [0, 1], and
    // mask_replace_prob + random_replace_prob is at most 1.
    MaskedTokensDataset(std::shared_ptr<const Dataset> dataset, const MaskedTokensOptions& options);

    std::int64_t size() const override { return dataset_->size(); }
    // Returns a sample with new tensors. Throws ValueError if the sample is not a map with the
    // tensor "input_ids", DTypeError unless the ids and the mask are i64, ShapeError unless they
    // have one dimension and the same size, and the errors of the other dataset.
    Tree get(std::int64_t index) const override;
    bool has_uniform_shapes() const override { return dataset_->has_uniform_shapes(); }
    std::shared_ptr<const Dataset> in_epoch(std::int64_t epoch) const override;

  private:
    std::shared_ptr<const Dataset> dataset_;
    MaskedTokensOptions options_;
    std::int64_t epoch_ = 0;
};

}  // namespace axle::data
