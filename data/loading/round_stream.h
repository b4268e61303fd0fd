// Private to data/loading/: the base class of streams that read their samples in rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/tree/tree.h"
#include "data/loading/iterable.h"

namespace axle::data {

// Yields the samples of one round after another, and keeps one round in memory. Derived classes
// define what a round contains.
class RoundStream : public Stream {
  public:
    std::optional<Tree> next() override;
    std::int64_t skip(std::int64_t n) override;
    bool repeated() const override { return yielded_ > real_; }

  protected:
    // `size` is the number of samples in a round, except for an incomplete last round.
    explicit RoundStream(std::int64_t size) : size_(size) {}

    // Reads the next round into `round`, which is empty. Adds no samples at the end. Returns the
    // number of samples before the repeated ones.
    virtual std::int64_t read_round(std::vector<Tree>& round) = 0;
    // Skips at most `rounds` rounds and returns the number of samples in them.
    virtual std::int64_t skip_rounds(std::int64_t rounds) = 0;
    // Returns whether the next round cannot be skipped, because its samples may be repeated later.
    virtual bool must_read() const = 0;

  private:
    bool read();
    std::int64_t skip_buffered(std::int64_t n);

    std::int64_t size_;
    std::vector<Tree> round_;   // the current round
    std::int64_t real_ = 0;     // number of samples in round_ that are not repeated
    std::int64_t yielded_ = 0;  // number of samples in round_ that were returned or skipped
};

// Appends the next n samples of `from` to `to`. Returns how many existed.
std::int64_t read_samples(Stream& from, std::int64_t n, std::vector<Tree>& to);

}  // namespace axle::data
