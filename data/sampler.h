// Samplers: which samples a pass visits, in which order, and how they are grouped into batches.
//
// Orders are pure functions of the epoch. That is what makes resuming exact: a position in a pass
// is one number, and any batch of any epoch can be asked for without going through those before it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace axle::inline v0::data {

// The seed that random orders come from. What shares a generator shares its seed, and processes
// agree on it before each pass (accel/utils/random.h). It has no other state: orders are functions
// of the seed and the epoch.
class Generator {
  public:
    explicit Generator(std::uint64_t seed = 0) : seed_(seed) {}
    std::uint64_t initial_seed() const { return seed_; }
    // Not while a loader that draws from it is in a pass.
    void manual_seed(std::uint64_t seed) { seed_ = seed; }

  private:
    std::atomic<std::uint64_t> seed_;
};

// The sample at a position of a pass. Several threads may call it at once.
using Order = std::function<std::int64_t(std::int64_t position)>;

class Sampler {
  public:
    virtual ~Sampler() = default;
    // Samples in a pass.
    virtual std::int64_t size() const = 0;
    virtual Order order(std::int64_t epoch) const = 0;
    // Null where nothing is random.
    virtual std::shared_ptr<Generator> generator() const { return nullptr; }

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
    std::int64_t num_samples = 0;               // samples in a pass; 0 for as many as there are
    std::shared_ptr<Generator> generator = {};  // instead of one with `seed`
};

// torch.utils.data.RandomSampler with a generator seeded with seed + epoch, which is Accelerate's
// SeedableRandomSampler. Without replacement, more samples than there are take one permutation
// after another.
class RandomSampler : public Sampler {
  public:
    explicit RandomSampler(std::int64_t n, RandomSamplerOptions options = {});
    std::int64_t size() const override { return options_.num_samples; }
    Order order(std::int64_t epoch) const override;
    std::shared_ptr<Generator> generator() const override { return options_.generator; }

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

struct DistributedSamplerOptions {
    std::int64_t num_replicas = 1, rank = 0;
    bool shuffle = true;
    std::uint64_t seed = 0;
    bool drop_last = false;  // else the first samples come again, so that all replicas get as many
};

// torch.utils.data.DistributedSampler: every num_replicas-th sample of an order that all replicas
// share. For a loader that no Accelerator prepares.
class DistributedSampler : public Sampler {
  public:
    // ValueError for a rank that isn't there.
    explicit DistributedSampler(std::int64_t n, DistributedSamplerOptions options = {});
    std::int64_t size() const override;
    Order order(std::int64_t epoch) const override;
    std::shared_ptr<Generator> generator() const override { return all_->generator(); }

  private:
    std::shared_ptr<const Sampler> all_;
    DistributedSamplerOptions options_;
};

// The samples of a batch.
struct BatchIndices {
    BatchIndices(std::vector<std::int64_t> samples_ = {}, std::int64_t repeated_ = 0)  // NOLINT
        : samples(std::move(samples_)), repeated(repeated_) {}

    std::vector<std::int64_t> samples;
    // How many of them, the last ones, the pass has had already: they only fill the batch up.
    std::int64_t repeated;
};

// A batch by its number in the pass. Several threads may call it at once.
using BatchOrder = std::function<BatchIndices(std::int64_t batch)>;

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
    // Samples that batches are made of, those that drop_last leaves out too; where it is known.
    virtual std::optional<std::int64_t> num_samples() const { return std::nullopt; }
    // Null where nothing is random.
    virtual std::shared_ptr<Generator> generator() const { return nullptr; }
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
    std::optional<std::int64_t> num_samples() const override { return sampler_->size(); }
    std::shared_ptr<Generator> generator() const override { return sampler_->generator(); }

  private:
    std::shared_ptr<const Sampler> sampler_;
    std::int64_t batch_size_;
    bool drop_last_;
};

// accelerate.data_loader.SkipBatchSampler: another's batches without the first ones, in every pass.
class SkipBatchSampler : public BatchSampler {
  public:
    // ValueError for a negative number.
    SkipBatchSampler(std::shared_ptr<const BatchSampler> whole, std::int64_t skip_batches);
    std::int64_t size() const override;
    BatchOrder order(std::int64_t epoch) const override;
    std::int64_t batch_size() const override { return whole_->batch_size(); }
    bool drop_last() const override { return whole_->drop_last(); }
    std::optional<std::int64_t> num_samples() const override;
    std::shared_ptr<Generator> generator() const override { return whole_->generator(); }
    // size(), but a ValueError where more is skipped than there is.
    std::int64_t len() const;

  private:
    std::shared_ptr<const BatchSampler> whole_;
    std::int64_t skip_batches_;
};

}  // namespace axle::inline v0::data
