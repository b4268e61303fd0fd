// BatchSamplerShard: the batches of a batch sampler for one process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "data/sampler.h"

namespace axle::data {

struct ShardOptions {
    std::int64_t num_processes = 1, process_index = 0;
    // If true, each batch of the sampler is split between the processes. If false, each process
    // gets every num_processes-th batch.
    bool split_batches = false;
    // If true, all processes get the same number of full batches: the last batches are filled with
    // samples from the beginning of the pass, unless the sampler has drop_last. If the batch size
    // varies, complete batches are repeated.
    bool even_batches = true;
};

// Throws ValueError unless process_index is in [0, num_processes). With split_batches, also throws
// ValueError unless batch_size is a positive multiple of num_processes; 0 means that the batch size
// varies. Messages begin with `who`.
void check_shard(const char* who, const ShardOptions& options, std::int64_t batch_size);

// The batches of one process (accelerate.data_loader.BatchSamplerShard). If split_batches is false
// and the sampler has drop_last, the last batches are dropped unless there is one for every
// process.
class BatchSamplerShard : public BatchSampler {
  public:
    // Throws UsageError if `whole` is null, and ValueError if options are invalid (check_shard()).
    BatchSamplerShard(std::shared_ptr<const BatchSampler> whole, ShardOptions options);

    // Returns the number of batches of this process.
    std::int64_t size() const override;
    BatchOrder order(std::int64_t epoch) const override;
    // Returns the batch size of this process.
    std::int64_t batch_size() const override;
    bool drop_last() const override { return whole_->drop_last(); }
    // Returns the number of samples of all processes, or nullopt if it is unknown.
    std::optional<std::int64_t> num_samples() const override { return whole_->num_samples(); }
    std::shared_ptr<Generator> generator() const override { return whole_->generator(); }

  private:
    BatchOrder split_order(std::int64_t epoch) const;
    BatchOrder round_robin_order(std::int64_t epoch) const;

    std::shared_ptr<const BatchSampler> whole_;
    ShardOptions options_;
};

}  // namespace axle::data
