// Samplers choose which samples a pass visits and in which order; batch samplers group them into
// batches.
//
// Orders are pure functions of the epoch, so a run can be resumed exactly: a position in a pass is
// a single number, and any batch of an epoch can be computed without computing the batches before
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace axle::data {

// The seed of random orders. Several samplers can share a Generator. Processes synchronize its seed
// before each pass (accel/utils/random.h). It has no other state, because orders are functions of
// seed and epoch. Thread-safe.
class Generator {
  public:
    explicit Generator(std::uint64_t seed = 0) : seed_(seed) {}
    std::uint64_t initial_seed() const { return seed_; }
    // Sets the seed. Must not be called during a pass of a loader that uses this generator.
    void manual_seed(std::uint64_t seed) { seed_ = seed; }

  private:
    std::atomic<std::uint64_t> seed_;
};

// A function that returns the index of the sample at a position of a pass. Can be called
// concurrently.
using Order = std::function<std::int64_t(std::int64_t position)>;

// Base class of samplers, which define an order of sample indices for each epoch. Immutable;
// several threads can share a sampler.
class Sampler {
  public:
    virtual ~Sampler() = default;
    // Returns the number of samples in a pass.
    virtual std::int64_t size() const = 0;
    virtual Order order(std::int64_t epoch) const = 0;
    // Returns the generator of the order, or nullptr if the order is not random.
    virtual std::shared_ptr<Generator> generator() const { return nullptr; }

    // Returns the complete order of an epoch.
    std::vector<std::int64_t> indices(std::int64_t epoch = 0) const;
};

// Visits the samples 0 to n - 1 in order.
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
    std::int64_t num_samples = 0;               // number of samples in a pass; 0 selects n
    std::shared_ptr<Generator> generator = {};  // if set, its seed is used instead of `seed`
};

// Visits the samples in random order, as torch.utils.data.RandomSampler with a generator seeded
// with seed + epoch (Accelerate's SeedableRandomSampler). Without replacement, if num_samples > n,
// concatenates several permutations.
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

// Visits the given samples in the given order.
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
    // If false, the first samples are repeated so that all replicas get the same number of samples.
    bool drop_last = false;
};

// Visits every num_replicas-th sample of an order that is the same for all replicas, as
// torch.utils.data.DistributedSampler. Use it only for loaders that are not prepared by an
// Accelerator.
class DistributedSampler : public Sampler {
  public:
    // Throws ValueError unless 0 <= rank < num_replicas.
    explicit DistributedSampler(std::int64_t n, DistributedSamplerOptions options = {});
    std::int64_t size() const override;
    Order order(std::int64_t epoch) const override;
    std::shared_ptr<Generator> generator() const override { return all_->generator(); }

  private:
    std::shared_ptr<const Sampler> all_;
    DistributedSamplerOptions options_;
};

// The sample indices of a batch.
struct BatchIndices {
    BatchIndices(std::vector<std::int64_t> samples_ = {}, std::int64_t repeated_ = 0)  // NOLINT
        : samples(std::move(samples_)), repeated(repeated_) {}

    std::vector<std::int64_t> samples;
    // The last `repeated` samples were already visited in this pass; they only fill the batch.
    std::int64_t repeated;
};

// A function that returns the samples of a batch, given its number in the pass. Can be called
// concurrently.
using BatchOrder = std::function<BatchIndices(std::int64_t batch)>;

// Base class of batch samplers, which define an order of batches for each epoch. Derive from it for
// custom batches. Immutable; several threads can share a batch sampler.
class BatchSampler {
  public:
    virtual ~BatchSampler() = default;
    // Returns the number of batches in a pass.
    virtual std::int64_t size() const = 0;
    virtual BatchOrder order(std::int64_t epoch) const = 0;
    // Return the number of samples in a full batch (0 if it varies), and whether a smaller last
    // batch is dropped.
    virtual std::int64_t batch_size() const { return 0; }
    virtual bool drop_last() const { return false; }
    // Returns the number of samples that are grouped into batches, including the samples that
    // drop_last drops, or nullopt if it is unknown.
    virtual std::optional<std::int64_t> num_samples() const { return std::nullopt; }
    // Returns the generator of the order, or nullptr if the order is not random.
    virtual std::shared_ptr<Generator> generator() const { return nullptr; }
};

// Groups consecutive samples of a sampler, as torch.utils.data.BatchSampler.
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

// A batch sampler that skips the first batches of another batch sampler in every pass, as
// accelerate.data_loader.SkipBatchSampler.
class SkipBatchSampler : public BatchSampler {
  public:
    // Throws ValueError if skip_batches is negative.
    SkipBatchSampler(std::shared_ptr<const BatchSampler> whole, std::int64_t skip_batches);
    std::int64_t size() const override;
    BatchOrder order(std::int64_t epoch) const override;
    std::int64_t batch_size() const override { return whole_->batch_size(); }
    bool drop_last() const override { return whole_->drop_last(); }
    std::optional<std::int64_t> num_samples() const override;
    std::shared_ptr<Generator> generator() const override { return whole_->generator(); }
    // Returns size(). Throws ValueError if the other sampler has fewer batches than are skipped.
    std::int64_t len() const;

  private:
    std::shared_ptr<const BatchSampler> whole_;
    std::int64_t skip_batches_;
};

}  // namespace axle::data
