// Samplers choose which samples a pass visits and in which order; batch samplers group them into
// batches.
//
// Orders depend only on the seed and the epoch, so a run can be resumed exactly: a position in a
// pass is a single number, and any batch of an epoch can be computed without the batches before it.
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
// before each pass (accel/utils/random.h). A Generator has no other state, because orders depend
// only on the seed and the epoch. Thread-safe.
class Generator {
  public:
    explicit Generator(std::uint64_t seed = 0) : seed_(seed) {}
    std::uint64_t initial_seed() const { return seed_; }
    // Sets the seed. Must not be called during a pass of a loader that uses this generator.
    void manual_seed(std::uint64_t seed) { seed_ = seed; }

  private:
    std::atomic<std::uint64_t> seed_;
};

// A function that returns the index of the sample at a position of a pass. Several threads may call
// it concurrently.
using Order = std::function<std::int64_t(std::int64_t position)>;

// A growth of the dataset during a pass: the dataset had `size` samples and grew when the pass had
// read `at` samples.
struct Growth {
    std::int64_t size = 0, at = 0;
    friend bool operator==(const Growth&, const Growth&) = default;
};

// The pass of an epoch during which the dataset has grown, with the growths in order.
struct GrownPass {
    std::int64_t epoch = 0;
    std::vector<Growth> growths = {};
};

// Throws ValueError unless the growths are possible for a dataset that now has `size` samples: the
// sizes increase and are below `size`, the positions increase, and each position is in [1, size of
// the growth).
void check_growths(const std::vector<Growth>& growths, std::int64_t size);

// Base class of samplers, which define an order of sample indices for each epoch. A sampler is
// immutable (except for the seed of its generator), so several threads can share it.
class Sampler {
  public:
    virtual ~Sampler() = default;
    // Returns the number of samples in a pass.
    virtual std::int64_t size() const = 0;
    // Returns the order of an epoch, for positions in [0, size()).
    virtual Order order(std::int64_t epoch) const = 0;
    // Returns the generator of the order, or nullptr if the order is not random.
    virtual std::shared_ptr<Generator> generator() const { return nullptr; }
    // Returns this sampler with another order in the epoch of `pass`, or nullptr (the default) if
    // the sampler does not support grown passes. The order must visit each sample once, and begin
    // with the samples that the pass has read before it was resumed with a larger dataset: the
    // samples up to the position of the last growth. size() and other epochs do not change. Throws
    // ValueError if the growths are impossible (check_growths()).
    virtual std::shared_ptr<const Sampler> grown(const GrownPass& pass) const;

    // Returns the sample indices of an epoch in order.
    std::vector<std::int64_t> indices(std::int64_t epoch = 0) const;
};

// Visits the samples 0 to n - 1 in order.
class SequentialSampler : public Sampler {
  public:
    // Throws ValueError if n is negative.
    explicit SequentialSampler(std::int64_t n);
    std::int64_t size() const override { return n_; }
    Order order(std::int64_t epoch) const override;
    std::shared_ptr<const Sampler> grown(const GrownPass& pass) const override;

  private:
    std::int64_t n_;
};

struct RandomSamplerOptions {
    std::uint64_t seed = 0;
    bool replacement = false;  // whether each draw is from all samples, so that some are repeated
    std::int64_t num_samples = 0;               // number of samples in a pass; 0 means n
    std::shared_ptr<Generator> generator = {};  // if set, its seed is used instead of `seed`
};

// Visits the samples 0 to n - 1 in the random order of torch.utils.data.RandomSampler with a
// generator seeded with seed + epoch (Accelerate's SeedableRandomSampler). Without replacement, if
// num_samples > n, the order consists of several permutations.
class RandomSampler : public Sampler {
  public:
    // Throws ValueError if n or num_samples is negative, or if n is 0 and num_samples is not.
    explicit RandomSampler(std::int64_t n, RandomSamplerOptions options = {});
    std::int64_t size() const override { return options_.num_samples; }
    Order order(std::int64_t epoch) const override;
    std::shared_ptr<Generator> generator() const override { return options_.generator; }
    // Samples that were not read before the last growth have the same order as in this epoch of a
    // dataset of n samples. Returns nullptr with replacement, or if num_samples is not n.
    std::shared_ptr<const Sampler> grown(const GrownPass& pass) const override;

  private:
    std::vector<std::int64_t> permutation(std::int64_t epoch, std::int64_t n) const;
    std::vector<std::int64_t> grown_indices() const;

    std::int64_t n_;
    RandomSamplerOptions options_;
    GrownPass grown_;
};

// Visits the samples `indices`, in the same order in all epochs.
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
    // Used if n is not a multiple of num_replicas. If true, the last samples are dropped; if false,
    // the first samples are repeated. All replicas then have the same number of samples.
    bool drop_last = false;
};

// Visits every num_replicas-th sample of an order that is the same for all replicas
// (torch.utils.data.DistributedSampler). Use it only for loaders that are not prepared by an
// Accelerator, which distributes the samples itself.
class DistributedSampler : public Sampler {
  public:
    // Throws ValueError unless n >= 0 and 0 <= rank < num_replicas.
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

// A function that returns the samples of a batch, given the number of the batch in the pass.
// Several threads may call it concurrently.
using BatchOrder = std::function<BatchIndices(std::int64_t batch)>;

// Base class of batch samplers, which define an order of batches for each epoch. Derive from this
// class for custom batches. A batch sampler is immutable (except for the seed of its generator), so
// several threads can share it.
class BatchSampler {
  public:
    virtual ~BatchSampler() = default;
    // Returns the number of batches in a pass.
    virtual std::int64_t size() const = 0;
    // Returns the order of an epoch: a function of the number of a batch, in [0, size()).
    virtual BatchOrder order(std::int64_t epoch) const = 0;
    // Return the number of samples in a full batch (0 if it varies), and whether a smaller last
    // batch is dropped.
    virtual std::int64_t batch_size() const { return 0; }
    virtual bool drop_last() const { return false; }
    // Returns the number of samples that are grouped into batches, including the samples that
    // drop_last drops, or nullopt if the number is unknown.
    virtual std::optional<std::int64_t> num_samples() const { return std::nullopt; }
    // Returns the generator of the order, or nullptr if the order is not random.
    virtual std::shared_ptr<Generator> generator() const { return nullptr; }
    // Returns this batch sampler with the samples in the order of Sampler::grown(), or nullptr (the
    // default) if it does not support grown passes.
    virtual std::shared_ptr<const BatchSampler> grown(const GrownPass& pass) const;
};

// Groups consecutive samples of a sampler into batches (torch.utils.data.BatchSampler).
class FixedBatchSampler : public BatchSampler {
  public:
    // Throws UsageError if the sampler is null, and ValueError unless batch_size is positive.
    FixedBatchSampler(std::shared_ptr<const Sampler> sampler, std::int64_t batch_size,
                      bool drop_last);
    std::int64_t size() const override;
    BatchOrder order(std::int64_t epoch) const override;
    std::int64_t batch_size() const override { return batch_size_; }
    bool drop_last() const override { return drop_last_; }
    std::optional<std::int64_t> num_samples() const override { return sampler_->size(); }
    std::shared_ptr<Generator> generator() const override { return sampler_->generator(); }
    std::shared_ptr<const BatchSampler> grown(const GrownPass& pass) const override;

  private:
    std::shared_ptr<const Sampler> sampler_;
    std::int64_t batch_size_;
    bool drop_last_;
};

// A batch sampler that skips the first batches of another batch sampler in every pass
// (accelerate.data_loader.SkipBatchSampler).
class SkipBatchSampler : public BatchSampler {
  public:
    // Throws UsageError if `whole` is null, and ValueError if skip_batches is negative.
    SkipBatchSampler(std::shared_ptr<const BatchSampler> whole, std::int64_t skip_batches);
    std::int64_t size() const override;
    BatchOrder order(std::int64_t epoch) const override;
    std::int64_t batch_size() const override { return whole_->batch_size(); }
    bool drop_last() const override { return whole_->drop_last(); }
    std::optional<std::int64_t> num_samples() const override;
    std::shared_ptr<Generator> generator() const override { return whole_->generator(); }
    // Returns size(). Throws ValueError if `whole` has fewer than skip_batches batches.
    std::int64_t len() const;

  private:
    std::shared_ptr<const BatchSampler> whole_;
    std::int64_t skip_batches_;
};

}  // namespace axle::data
