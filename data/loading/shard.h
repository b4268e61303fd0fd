// One process's share of a batch sampler: every process reads other batches of the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "data/sampler.h"

namespace axle::inline v0::data {

struct ShardOptions {
    std::int64_t num_processes = 1, process_index = 0;
    // The sampler's batch is the batch of all processes, and each takes its part of it; else each
    // takes every num_processes-th batch.
    bool split_batches = false;
    // Every process gets as many batches, all of them full: what is missing at the end is filled up
    // with samples from the beginning of the pass. A sampler without a batch size is filled up with
    // whole batches.
    bool even_batches = true;
};

// ValueErrors that begin with `who`: for a process that doesn't exist, and for split_batches with a
// batch size that varies (0) or that the number of processes doesn't divide.
void check_shard(const char* who, const ShardOptions& options, std::int64_t batch_size);

// As accelerate.data_loader.BatchSamplerShard. With drop_last of the sampler, a last round that is
// not complete for all processes is left out for all of them.
class BatchSamplerShard : public BatchSampler {
  public:
    // ValueErrors of check_shard().
    BatchSamplerShard(std::shared_ptr<const BatchSampler> whole, ShardOptions options);

    // What this process gets in a pass.
    std::int64_t size() const override;
    BatchOrder order(std::int64_t epoch) const override;
    // Of this process's batches.
    std::int64_t batch_size() const override;
    bool drop_last() const override { return whole_->drop_last(); }
    // Of all processes.
    std::optional<std::int64_t> num_samples() const override { return whole_->num_samples(); }
    std::shared_ptr<Generator> generator() const override { return whole_->generator(); }

  private:
    BatchOrder parts(std::int64_t epoch) const;
    BatchOrder turns(std::int64_t epoch) const;

    std::shared_ptr<const BatchSampler> whole_;
    ShardOptions options_;
};

}  // namespace axle::inline v0::data
