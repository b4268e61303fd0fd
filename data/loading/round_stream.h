// Private to data/loading: the base class of streams that read their samples in rounds (groups).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/tree/tree.h"
#include "data/loading/iterable.h"

namespace axle::data {

// A stream that reads one round of samples at a time and returns them one by one. Derived classes
// define the samples of a round.
class RoundStream : public Stream {
  public:
    std::optional<Tree> next() override;
    std::int64_t skip(std::int64_t n) override;
    bool repeated() const override { return yielded_ > real_; }

  protected:
    // `size` is the number of samples in a round, except for an incomplete last round.
    explicit RoundStream(std::int64_t size) : size_(size) {}

    // Appends the samples of the next round to `round`, which is empty when the function is called;
    // appends nothing at the end of the stream. Repetitions must come last. Returns the number of
    // samples that are not repetitions.
    virtual std::int64_t read_round(std::vector<Tree>& round) = 0;
    // Skips `rounds` rounds, or all remaining ones if there are fewer, and returns the number of
    // samples in the skipped rounds.
    virtual std::int64_t skip_rounds(std::int64_t rounds) = 0;
    // Returns whether the next round must be read even if it is skipped, because its samples may be
    // repeated later.
    virtual bool must_read() const = 0;

  private:
    bool read();
    std::int64_t skip_buffered(std::int64_t n);

    std::int64_t size_;
    std::vector<Tree> round_;   // the current round
    std::int64_t real_ = 0;     // number of samples in round_ that are not repetitions
    std::int64_t yielded_ = 0;  // number of samples in round_ that were returned or skipped
};

// Appends the next n samples of `from` to `to`, or all remaining ones if there are fewer. Returns
// the number of appended samples.
std::int64_t read_samples(Stream& from, std::int64_t n, std::vector<Tree>& to);

}  // namespace axle::data
