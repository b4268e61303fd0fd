#include "data/length_batches.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "data/mt19937.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

using Indices = std::vector<std::int64_t>;

void check_lengths(const char* who, const Indices& lengths) {
    for (std::size_t i = 0; i < lengths.size(); ++i)
        if (lengths[i] < 0)
            throw ValueError(
                str(who, ": lengths must not be negative: sample ", i, " has length ", lengths[i]));
}

// If the options shuffle, creates their generator unless they have one. Otherwise, sets it to null.
template <class Options>
void complete(Options& options) {
    if (!options.shuffle) {
        options.generator = nullptr;
    } else if (!options.generator) {
        options.generator = std::make_shared<Generator>(options.seed);
    }
}

// The random order of an epoch, or the order of the dataset if the generator is null.
class Shuffle {
  public:
    Shuffle(const Generator* generator, std::int64_t epoch)
        : is_random_(generator != nullptr),
          random_(is_random_ ? generator->initial_seed() + static_cast<std::uint64_t>(epoch) : 0) {}

    // Returns the integers 0 to n - 1 in this order.
    Indices operator()(std::int64_t n) {
        if (is_random_) return randperm(n, random_);
        Indices all(static_cast<std::size_t>(n));
        std::iota(all.begin(), all.end(), std::int64_t{0});
        return all;
    }

  private:
    bool is_random_;
    Mt19937 random_;
};

// Sorts samples by length. Samples of the same length keep their order.
void sort_by_length(Indices::iterator begin, Indices::iterator end, const Indices& lengths) {
    std::stable_sort(begin, end, [&](std::int64_t a, std::int64_t b) {
        return lengths[static_cast<std::size_t>(a)] < lengths[static_cast<std::size_t>(b)];
    });
}

// Returns the order of batches that are consecutive parts of `samples`. Part i ends before position
// ends[i], and batch i is part batches[i].
BatchOrder order_of_parts(Indices samples, Indices ends, Indices batches) {
    struct Parts {
        Indices samples, ends, batches;
    };
    return [parts = std::make_shared<const Parts>(
                Parts{std::move(samples), std::move(ends), std::move(batches)})](std::int64_t i) {
        const auto part = static_cast<std::size_t>(parts->batches[static_cast<std::size_t>(i)]);
        const auto begin = parts->samples.begin();
        return BatchIndices(
            Indices(begin + (part == 0 ? 0 : parts->ends[part - 1]), begin + parts->ends[part]));
    };
}

}  // namespace

BucketBatchSampler::BucketBatchSampler(std::vector<std::int64_t> lengths, std::int64_t batch_size,
                                       BucketBatchSamplerOptions options)
    : lengths_(std::move(lengths)), batch_size_(batch_size), options_(std::move(options)) {
    check_lengths("BucketBatchSampler", lengths_);
    if (batch_size < 1 || options_.bucket_batches < 1)
        throw ValueError(
            str("BucketBatchSampler: batch_size and bucket_batches must be positive: "
                "batch_size is ",
                batch_size, ", bucket_batches is ", options_.bucket_batches));
    complete(options_);
}

std::int64_t BucketBatchSampler::size() const {
    const std::int64_t n = std::ssize(lengths_);
    return n / batch_size_ + (n % batch_size_ != 0 && !options_.drop_last ? 1 : 0);
}

BatchOrder BucketBatchSampler::order(std::int64_t epoch) const {
    Shuffle shuffle(options_.generator.get(), epoch);
    const std::int64_t n = std::ssize(lengths_), full = n / batch_size_;
    Indices samples = shuffle(n);
    for (std::int64_t batch = 0; batch < full;) {
        const std::int64_t end = batch + std::min(options_.bucket_batches, full - batch);
        sort_by_length(samples.begin() + batch * batch_size_, samples.begin() + end * batch_size_,
                       lengths_);
        batch = end;
    }
    Indices ends, batches = shuffle(full);
    for (std::int64_t batch = 0; batch < size(); ++batch)
        ends.push_back(batch < full ? (batch + 1) * batch_size_ : n);
    if (size() > full) batches.push_back(full);
    return order_of_parts(std::move(samples), std::move(ends), std::move(batches));
}

TokenBatchSampler::TokenBatchSampler(std::vector<std::int64_t> lengths, std::int64_t max_tokens,
                                     TokenBatchSamplerOptions options)
    : lengths_(std::move(lengths)), options_(std::move(options)) {
    check_lengths("TokenBatchSampler", lengths_);
    if (max_tokens < 1)
        throw ValueError(str("TokenBatchSampler: max_tokens must be positive: ", max_tokens));
    complete(options_);
    Indices sorted = lengths_;
    std::sort(sorted.begin(), sorted.end());
    if (!sorted.empty() && sorted.back() > max_tokens)
        throw ValueError(
            str("TokenBatchSampler: a sample is longer than max_tokens: sample ",
                std::find(lengths_.begin(), lengths_.end(), sorted.back()) - lengths_.begin(),
                " has ", sorted.back(), " tokens, max_tokens is ", max_tokens));
    std::int64_t begin = 0;
    for (std::int64_t i = 0; i < std::ssize(sorted); ++i) {
        const auto length = std::max<std::int64_t>(sorted[static_cast<std::size_t>(i)], 1);
        if (i + 1 - begin > max_tokens / length) {
            ends_.push_back(i);
            begin = i;
        }
    }
    if (!sorted.empty()) ends_.push_back(std::ssize(sorted));
}

BatchOrder TokenBatchSampler::order(std::int64_t epoch) const {
    Shuffle shuffle(options_.generator.get(), epoch);
    Indices samples = shuffle(std::ssize(lengths_));
    sort_by_length(samples.begin(), samples.end(), lengths_);
    return order_of_parts(std::move(samples), ends_, shuffle(size()));
}

}  // namespace axle::data
