// Beam search with the scores and the stopping rule of Transformers. In each step, the most
// probable continuations of all beams are ranked. Continuations that end a sequence are finished if
// they are among the first num_beams. The best continuations that do not end a sequence become the
// next beams.
#include "nn/generation/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/ops.h"
#include "nn/generation/next_token.h"

namespace axle::nn {
namespace {

struct Beam {
    TokenIds ids;
    double score = 0;  // the log probability of the new tokens
};

// A beam and a token that continues it.
struct Continuation {
    std::size_t beam = 0;
    std::int64_t token = 0;
    double score = 0;  // the log probability of all new tokens
};

// Returns the `count` best continuations of the beams, best first. scores [beams, vocabulary] has
// the log probabilities of the next tokens.
std::vector<Continuation> best_continuations(const std::vector<Beam>& beams, const Tensor& scores,
                                             std::int64_t count) {
    std::vector<double> earlier;
    earlier.reserve(beams.size());
    for (const Beam& beam : beams) earlier.push_back(beam.score);
    const Tensor sums =
        scores + tensor(earlier, {std::ssize(beams), 1}).to(f32).to(scores.device());
    const auto [values, indices] = topk(sums.reshape({-1}), std::min(count, sums.numel()));
    const std::vector<double> value = values.to_vector();
    const Tensor index = indices.cpu().contiguous();
    std::vector<Continuation> result;
    for (std::size_t i = 0; i < value.size(); ++i) {
        const std::int64_t cell = index.data<std::int64_t>()[i];
        result.push_back({.beam = static_cast<std::size_t>(cell / scores.size(1)),
                          .token = cell % scores.size(1),
                          .score = value[i]});
    }
    return result;
}

// The best finished sequences, best first.
class Finished {
  public:
    explicit Finished(const GenerateOptions& options) : options_(options) {}

    // `length` is the number of new tokens.
    double normalized(double score, std::int64_t length) const {
        return score / std::pow(static_cast<double>(length), options_.length_penalty);
    }
    bool is_full() const { return std::ssize(beams_) >= options_.num_beams; }
    void add(Beam beam) {
        const auto place = std::ranges::find_if(
            beams_, [&](const Beam& other) { return other.score < beam.score; });
        beams_.insert(place, std::move(beam));
        if (std::ssize(beams_) > options_.num_beams) beams_.pop_back();
    }
    const Beam& best() const { return beams_.front(); }
    const Beam& worst() const { return beams_.back(); }

  private:
    const GenerateOptions& options_;
    std::vector<Beam> beams_;
};

TokenIds with_token(TokenIds ids, std::int64_t token) {
    ids.push_back(token);
    return ids;
}

}  // namespace

TokenIds beam_search(Decoding& decoding, const TokenIds& prompt, std::int64_t count,
                     const GenerateOptions& options) {
    const std::int64_t ends = std::ssize(options.eos_token_id);
    const std::int64_t ranked = std::max<std::int64_t>(2, 1 + ends) * options.num_beams;
    const auto is_end = [&](std::int64_t token) {
        return std::ranges::find(options.eos_token_id, token) != options.eos_token_id.end();
    };
    std::vector<Beam> beams{{.ids = prompt}};
    Finished finished(options);
    for (std::int64_t length = 1; length <= count; ++length) {
        std::vector<TokenIds> sequences;
        sequences.reserve(beams.size());
        for (const Beam& beam : beams) sequences.push_back(beam.ids);
        const Tensor scores =
            penalized(log_softmax(decoding.logits(sequences)), sequences, options);

        std::vector<Beam> next;
        std::vector<std::int64_t> origins;
        std::int64_t rank = 0;
        for (const Continuation& one : best_continuations(beams, scores, ranked)) {
            const bool ended = is_end(one.token) || length == count;
            if (ended && rank < options.num_beams)
                finished.add({.ids = with_token(beams[one.beam].ids, one.token),
                              .score = finished.normalized(one.score, length)});
            if (!ended && std::ssize(next) < options.num_beams) {
                next.push_back(
                    {.ids = with_token(beams[one.beam].ids, one.token), .score = one.score});
                origins.push_back(static_cast<std::int64_t>(one.beam));
            }
            ++rank;
        }
        if (next.empty()) break;
        const bool can_improve =
            !finished.is_full() ||
            finished.normalized(next.front().score, length) > finished.worst().score;
        if (!can_improve || (finished.is_full() && options.early_stopping)) break;
        decoding.select(origins);
        beams = std::move(next);
    }
    return finished.best().ids;
}

}  // namespace axle::nn
