// The unigram language model of SentencePiece: divides a piece into the tokens with the largest sum
// of scores.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/files/file.h"
#include "data/tokenizers/components.h"
#include "data/tokenizers/trie.h"
#include "data/tokenizers/unicode.h"
#include "kernels/error.h"

namespace axle::data::tokenizers {
namespace {

// The best way to divide the bytes before a position.
struct Step {
    double score = 0;
    std::int64_t id = 0;      // the last token
    std::uint32_t begin = 0;  // its first byte
    bool is_reached = false;
};

class Steps : public Scratch {
  public:
    std::vector<Step> steps;
    std::vector<Range> ranges;
};

class Unigram : public Model {
  public:
    explicit Unigram(const Fields& fields) : Unigram(fields, read(fields)) {}

    std::unique_ptr<Scratch> make_scratch() const override { return std::make_unique<Steps>(); }

    void encode(std::string_view piece, std::vector<Token>& out, Scratch* scratch) const override {
        auto& [steps, ranges] = static_cast<Steps&>(*scratch);
        steps.assign(piece.size() + 1, {});
        ranges.clear();
        find_best(piece, steps);
        bool was_unknown = false;
        for (auto end = static_cast<std::uint32_t>(piece.size()); end > 0;) {
            const Step& step = steps[end];
            const bool is_unknown = step.id == unknown_;
            if (is_unknown && was_unknown) {
                ranges.back().begin = step.begin;  // neighboring unknown characters are one token
            } else {
                ranges.push_back({step.begin, end});
            }
            was_unknown = is_unknown;
            end = step.begin;
        }
        for (auto range = ranges.rbegin(); range != ranges.rend(); ++range)
            add(piece.substr(range->begin, range->end - range->begin), *range, out);
    }

  private:
    struct Tokens {
        Vocabulary vocabulary;
        std::vector<double> scores;
    };

    static Tokens read(const Fields& fields) {
        Tokens tokens;
        const std::string path = fields.path_of("vocab");
        for (const Tree& entry : fields.list("vocab").elements()) {
            const std::size_t i = tokens.scores.size();
            if (!entry.is_list() || entry.size() != 2 || !entry[0].is_string() ||
                !entry[1].is_number())
                fail_at(path, str("entry ", i, " must be a list of a token and a score"));
            const double score = entry[1].number();
            if (!std::isfinite(score))
                fail_at(path, str("the score of entry ", i, " must be finite"));
            tokens.vocabulary.add(entry[0].string());
            tokens.scores.push_back(score);
        }
        if (tokens.scores.empty()) fail_at(path, "the vocabulary is empty");
        return tokens;
    }

    Unigram(const Fields& fields, Tokens tokens)
        : Model(std::move(tokens.vocabulary)),
          scores_(std::move(tokens.scores)),
          trie_(sorted(vocabulary())),
          byte_fallback_(fields.flag("byte_fallback", false)) {
        if (fields.has("unk_id")) unknown_ = fields.integer("unk_id", 0, vocabulary().max_id());
        unknown_score_ = *std::ranges::min_element(scores_) - kUnknownPenalty;
        fields.allow_only({"vocab", "unk_id", "byte_fallback"});
    }

    // Returns the distinct tokens that are not empty, in order.
    static std::vector<std::pair<std::string_view, std::int64_t>> sorted(const Vocabulary& all) {
        std::vector<std::pair<std::string_view, std::int64_t>> tokens;
        for (std::int64_t id = 0; id <= all.max_id(); ++id) {
            const std::string& token = *all.token(id);
            if (!token.empty() && *all.id(token) == id) tokens.emplace_back(token, id);
        }
        std::ranges::sort(tokens);
        return tokens;
    }

    // Fills in the best step to each position (the algorithm of Viterbi).
    void find_best(std::string_view piece, std::vector<Step>& steps) const {
        const auto offer = [&](std::size_t begin, std::size_t end, std::int64_t id, double score) {
            Step& step = steps[end];
            if (step.is_reached && score <= step.score) return;
            step = {score, id, static_cast<std::uint32_t>(begin), true};
        };
        for (std::size_t begin = 0; begin < piece.size();) {
            const double score = steps[begin].score;
            const std::size_t size = character_in(piece, begin).size;
            bool has_single = false;  // whether the character is a token
            trie_.for_each_prefix(piece.substr(begin), [&](std::int64_t id, std::size_t length) {
                offer(begin, begin + length, id, score + scores_[static_cast<std::size_t>(id)]);
                has_single = has_single || length == size;
            });
            if (!has_single)
                offer(begin, begin + size, unknown_id(piece.substr(begin, size)),
                      score + unknown_score_);
            begin += size;
        }
    }

    // Returns unk_id. `text` is the unknown text.
    std::int64_t unknown_id(std::string_view text) const {
        if (unknown_ < 0)
            throw ValueError(str("encode: the vocabulary lacks ", in_quotes(text),
                                 " and the model has no unk_id"));
        return unknown_;
    }

    // Appends the token of a text, or the tokens of its bytes.
    void add(std::string_view text, Range range, std::vector<Token>& out) const {
        if (const auto id = vocabulary().id(text)) {
            out.push_back({*id, range});
            return;
        }
        if (byte_fallback_) {
            const std::size_t before = out.size();
            const bool all = std::ranges::all_of(text, [&](char byte) {
                const auto id = vocabulary().byte_id(static_cast<unsigned char>(byte));
                if (id) out.push_back({*id, range});
                return id.has_value();
            });
            if (all) return;
            out.resize(before);
        }
        out.push_back({unknown_id(text), range, true});
    }

    static constexpr double kUnknownPenalty = 10;

    std::vector<double> scores_;  // by id
    Trie trie_;
    bool byte_fallback_;
    std::int64_t unknown_ = -1;
    double unknown_score_;
};

}  // namespace

std::unique_ptr<Model> make_unigram(const Fields& fields) {
    return std::make_unique<Unigram>(fields);
}

}  // namespace axle::data::tokenizers
