// Batch samplers for samples of different lengths, such as tokenized texts. They group samples of
// similar lengths, so that little of a padded batch (data/loading/padding.h) is padding.
//
//     std::vector<std::int64_t> lengths;
//     for (std::int64_t i = 0; i < set.size(); ++i)
//         lengths.push_back(set.get(i)["input_ids"].size(0));
//     data::DataLoader loader(
//         set, {.batch_sampler = std::make_shared<data::TokenBatchSampler>(lengths, 4096),
//               .collate_fn = data::padding_collate()});
//
// Neither batch sampler supports datasets that grow within a pass.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/sampler.h"

namespace axle::data {

struct BucketBatchSamplerOptions {
    bool shuffle = true;
    // If true, the samples that do not fill a batch are dropped.
    bool drop_last = false;
    // The number of batches whose samples are sorted together. A larger number leaves less padding,
    // and a smaller number mixes the samples more.
    std::int64_t bucket_batches = 100;
    std::uint64_t seed = 0;
    std::shared_ptr<Generator> generator = {};  // if set, its seed is used instead of `seed`
};

// A sampler that groups samples of similar lengths into batches of batch_size samples. With
// shuffle, the samples are first put in random order. Samples at the end that do not fill a batch
// are set aside; they form the last batch, or are dropped with drop_last. The other samples are
// divided into buckets of bucket_batches * batch_size samples. The samples of a bucket are sorted
// by length and cut into batches. With shuffle, these batches are then put in random order. The
// order depends only on the lengths, the options, the seed and the epoch.
class BucketBatchSampler : public BatchSampler {
  public:
    // lengths[i] is the length of sample i, in any unit. Throws ValueError if a length is negative,
    // or if batch_size or bucket_batches is not positive.
    BucketBatchSampler(std::vector<std::int64_t> lengths, std::int64_t batch_size,
                       BucketBatchSamplerOptions options = {});
    std::int64_t size() const override;
    BatchOrder order(std::int64_t epoch) const override;
    std::int64_t batch_size() const override { return batch_size_; }
    bool drop_last() const override { return options_.drop_last; }
    std::optional<std::int64_t> num_samples() const override { return std::ssize(lengths_); }
    std::shared_ptr<Generator> generator() const override { return options_.generator; }

  private:
    std::vector<std::int64_t> lengths_;
    std::int64_t batch_size_;
    BucketBatchSamplerOptions options_;  // `generator` is null without shuffle
};

struct TokenBatchSamplerOptions {
    bool shuffle = true;
    std::uint64_t seed = 0;
    std::shared_ptr<Generator> generator = {};  // if set, its seed is used instead of `seed`
};

// A batch sampler with batches of at most max_tokens tokens, with padding: the number of samples
// times the largest length. A batch has as many samples as fit. All samples are sorted by length
// and cut into batches, so the batches of all epochs have the same lengths. With shuffle, samples
// of the same length are exchanged at random in each epoch, and the batches are put in random
// order. Without shuffle, the batches are in the order of their lengths. The order depends only on
// the lengths, the options, the seed and the epoch.
class TokenBatchSampler : public BatchSampler {
  public:
    // lengths[i] is the number of tokens of sample i; 0 counts as 1. Throws ValueError if a length
    // is negative or larger than max_tokens, or if max_tokens is not positive.
    TokenBatchSampler(std::vector<std::int64_t> lengths, std::int64_t max_tokens,
                      TokenBatchSamplerOptions options = {});
    std::int64_t size() const override { return std::ssize(ends_); }
    BatchOrder order(std::int64_t epoch) const override;
    std::optional<std::int64_t> num_samples() const override { return std::ssize(lengths_); }
    std::shared_ptr<Generator> generator() const override { return options_.generator; }

  private:
    std::vector<std::int64_t> lengths_;
    // The cumulative number of samples at the end of each batch, in order of length.
    std::vector<std::int64_t> ends_;
    TokenBatchSamplerOptions options_;  // `generator` is null without shuffle
};

}  // namespace axle::data
