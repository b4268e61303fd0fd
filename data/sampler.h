// Samplers: which samples a pass visits, in which order, and how they are grouped into batches.
//
// Orders are pure functions of the epoch. That is what makes resuming exact: a position in a pass
// is one number, and any batch of any epoch can be asked for without going through those before it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace axle::inline v0::data {

// The sample at a position of a pass. Several threads may call it at once.
using Order = std::function<std::int64_t(std::int64_t position)>;

class Sampler {
  public:
    virtual ~Sampler() = default;
    // Samples in a pass.
    virtual std::int64_t size() const = 0;
    virtual Order order(std::int64_t epoch) const = 0;

    // The whole order of an epoch.
    std::vector<std::int64_t> indices(std::int64_t epoch = 0) const;
};

// 0 to n - 1.
class SequentialSampler : public Sampler {
  public:
    explicit SequentialSampler(std::int64_t n);
    std::int64_t size() const override { return n_; }
    Order order(std::int64_t epoch) const override;

  private:
    std::int64_t n_;
};

struct RandomSamplerOptions {
    std::uint64_t seed = 0;
    bool replacement = false;
    std::int64_t num_samples = 0;  // samples in a pass; 0 for as many as there are
};

// torch.utils.data.RandomSampler with a generator seeded with seed + epoch, which is Accelerate's
// SeedableRandomSampler. Without replacement, more samples than there are take one permutation
// after another.
class RandomSampler : public Sampler {
  public:
    explicit RandomSampler(std::int64_t n, RandomSamplerOptions options = {});
    std::int64_t size() const override { return options_.num_samples; }
    Order order(std::int64_t epoch) const override;

  private:
    std::int64_t n_;
    RandomSamplerOptions options_;
};

// The given samples, in the given order.
class SubsetSampler : public Sampler {
  public:
    explicit SubsetSampler(std::vector<std::int64_t> indices);
    std::int64_t size() const override { return static_cast<std::int64_t>(indices_->size()); }
    Order order(std::int64_t epoch) const override;

  private:
    std::shared_ptr<const std::vector<std::int64_t>> indices_;
};

// The samples of a batch, by its number in the pass. Several threads may call it at once.
using BatchOrder = std::function<std::vector<std::int64_t>(std::int64_t batch)>;

// What a loader draws from: an own grouping, or one process's share of another's, derives from it.
class BatchSampler {
  public:
    virtual ~BatchSampler() = default;
    // Batches in a pass.
    virtual std::int64_t size() const = 0;
    virtual BatchOrder order(std::int64_t epoch) const = 0;
    // Samples in a full batch, 0 if that varies; and whether a smaller one at the end is left out.
    virtual std::int64_t batch_size() const { return 0; }
    virtual bool drop_last() const { return false; }
};

// torch.utils.data.BatchSampler: consecutive samples of a sampler.
class FixedBatchSampler : public BatchSampler {
  public:
    FixedBatchSampler(std::shared_ptr<const Sampler> sampler, std::int64_t batch_size,
                      bool drop_last);
    std::int64_t size() const override;
    BatchOrder order(std::int64_t epoch) const override;
    std::int64_t batch_size() const override { return batch_size_; }
    bool drop_last() const override { return drop_last_; }

  private:
    std::shared_ptr<const Sampler> sampler_;
    std::int64_t batch_size_;
    bool drop_last_;
};

}  // namespace axle::inline v0::data
