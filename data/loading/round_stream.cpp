#include "data/loading/round_stream.h"

#include <algorithm>
#include <utility>

namespace axle::data {

std::optional<Tree> RoundStream::next() {
    if (yielded_ == std::ssize(round_) && !read()) return std::nullopt;
    return std::move(round_[static_cast<std::size_t>(yielded_++)]);
}

std::int64_t RoundStream::skip(std::int64_t n) {
    std::int64_t skipped = skip_buffered(n);
    if (skipped < n && must_read() && read()) skipped += skip_buffered(n - skipped);
    if (const std::int64_t rounds = (n - skipped) / size_; rounds > 0)
        skipped += skip_rounds(rounds);
    if (skipped < n && read()) skipped += skip_buffered(n - skipped);
    return skipped;
}

// Reads the next round. Returns false at the end of the stream.
bool RoundStream::read() {
    round_.clear();
    yielded_ = real_ = 0;
    real_ = read_round(round_);
    return !round_.empty();
}

// Skips n samples of the current round, or all remaining ones if there are fewer, and returns the
// number of skipped samples.
std::int64_t RoundStream::skip_buffered(std::int64_t n) {
    const std::int64_t passed = std::min(n, std::ssize(round_) - yielded_);
    yielded_ += passed;
    return passed;
}

std::int64_t read_samples(Stream& from, std::int64_t n, std::vector<Tree>& to) {
    for (std::int64_t i = 0; i < n; ++i) {
        std::optional<Tree> sample = from.next();
        if (!sample) return i;
        to.push_back(std::move(*sample));
    }
    return n;
}

}  // namespace axle::data
