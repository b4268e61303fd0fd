// The share of one process of a batch sampler's batches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "data/sampler.h"

namespace axle::data {

struct ShardOptions {
    std::int64_t num_processes = 1, process_index = 0;
    // Splits each batch of the sampler between the processes. If false, each process takes every
    // num_processes-th batch.
    bool split_batches = false;
    // Gives all processes the same number of full batches: missing samples are taken from the
    // beginning of the pass. A sampler without a fixed batch size is filled with whole batches.
    bool even_batches = true;
};

// Throws ValueError, starting with `who`, if the process index is out of range, or if split_batches
// is set and the batch size varies (0) or is not divisible by the number of processes.
void check_shard(const char* who, const ShardOptions& options, std::int64_t batch_size);

// Equivalent to accelerate.data_loader.BatchSamplerShard. If the sampler has drop_last, a last
// round that is incomplete for any process is dropped for all.
class BatchSamplerShard : public BatchSampler {
  public:
    // Throws ValueError as check_shard() does.
    BatchSamplerShard(std::shared_ptr<const BatchSampler> whole, ShardOptions options);

    // Returns the number of batches of this process.
    std::int64_t size() const override;
    BatchOrder order(std::int64_t epoch) const override;
    // Returns the batch size of this process.
    std::int64_t batch_size() const override;
    bool drop_last() const override { return whole_->drop_last(); }
    // Returns the number of samples of all processes.
    std::optional<std::int64_t> num_samples() const override { return whole_->num_samples(); }
    std::shared_ptr<Generator> generator() const override { return whole_->generator(); }

  private:
    BatchOrder split_order(std::int64_t epoch) const;
    BatchOrder round_robin_order(std::int64_t epoch) const;

    std::shared_ptr<const BatchSampler> whole_;
    ShardOptions options_;
};

}  // namespace axle::data
