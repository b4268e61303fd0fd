#include "data/sentencepiece/sentencepiece.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>

#include "core/files/file.h"
#include "data/files/characters.h"
#include "data/sentencepiece/model.h"
#include "data/sentencepiece/normalizer.h"
#include "data/tokenizers/trie.h"
#include "data/tokenizers/unicode.h"
#include "kernels/error.h"

namespace axle::data {

using tokenizers::kReplacementCharacter;
using tokenizers::kSpace;
using tokenizers::longest_piece;
using tokenizers::PieceType;
using tokenizers::SentenceNormalization;
using tokenizers::SentenceNormalizer;
using tokenizers::SentencePieceModel;
using tokenizers::Trie;

namespace {

constexpr std::int64_t kMaxModelFile = std::int64_t{64} << 20;
constexpr std::size_t kLongestText = (std::size_t{1} << 30) - 1;

// A part of the normalized text, and the id of its piece.
struct TextPiece {
    std::string_view text;
    std::int64_t id;
};

// Returns the trie of the pieces for which f(type) returns true.
template <class F>
Trie trie_of(const SentencePieceModel& model, F&& f) {
    std::vector<std::pair<std::string_view, std::int64_t>> tokens;
    for (std::size_t id = 0; id < model.pieces.size(); ++id)
        if (f(model.pieces[id].type))
            tokens.emplace_back(model.pieces[id].text, static_cast<std::int64_t>(id));
    std::ranges::sort(tokens);
    return Trie(tokens);
}

// Returns whether pieces of a type are found in texts.
bool is_matched(PieceType type) {
    return type == PieceType::normal || type == PieceType::user_defined ||
           type == PieceType::unused;
}

}  // namespace

struct SentencePieceTokenizer::State {
    explicit State(SentencePieceModel read)
        : model(std::move(read)),
          matched(trie_of(model, is_matched)),
          user_defined(
              trie_of(model, [](PieceType type) { return type == PieceType::user_defined; })),
          normalizer(model.normalization, &user_defined, model.treat_whitespace_as_suffix),
          denormalizer(model.denormalization, nullptr, false) {
        for (std::size_t i = 0; i < model.pieces.size(); ++i) {
            const auto& [text, score, type] = model.pieces[i];
            const auto id = static_cast<std::int64_t>(i);
            (is_matched(type) ? ids : reserved).emplace(text, id);
            if (type == PieceType::unknown) unknown = id;
            if (type == PieceType::byte)
                bytes[static_cast<std::size_t>(tokenizers::byte_of_piece(text))] = id;
            if (type == PieceType::normal) smallest_score = std::min(smallest_score, score);
        }
    }

    PieceType type(std::int64_t id) const {
        return model.pieces[static_cast<std::size_t>(id)].type;
    }
    float score(std::int64_t id) const { return model.pieces[static_cast<std::size_t>(id)].score; }
    // Divides a normalized text into the pieces with the largest sum of scores.
    std::vector<TextPiece> divide_unigram(std::string_view text) const;
    // Merges neighboring parts to the piece with the largest score, until no piece is left.
    std::vector<TextPiece> divide_bpe(std::string_view text) const;
    std::optional<std::int64_t> control_id(const std::string& text) const {
        const auto found = reserved.find(text);
        if (found == reserved.end() || type(found->second) != PieceType::control) return {};
        return found->second;
    }

    SentencePieceModel model;
    Trie matched, user_defined;
    SentenceNormalizer normalizer, denormalizer;
    std::unordered_map<std::string_view, std::int64_t> ids, reserved;
    std::array<std::int64_t, 256> bytes = {};  // the pieces of bytes
    std::int64_t unknown = 0;
    float smallest_score = std::numeric_limits<float>::max();  // of normal pieces
};

std::vector<TextPiece> SentencePieceTokenizer::State::divide_unigram(std::string_view text) const {
    struct Step {
        float score = 0;
        std::int64_t id = 0;
        std::size_t begin = 0;
        bool is_reached = false;
    };
    std::vector<Step> steps(text.size() + 1);
    std::size_t last = 0;  // the last position that is reached
    const auto add = [&](std::size_t begin, std::size_t end, std::int64_t id, float sum) {
        last = std::max(last, end);
        Step& step = steps[end];
        if (!step.is_reached || sum > step.score) step = {sum, id, begin, true};
    };
    // Sums of scores are rounded as in sentencepiece, because near ties depend on it. Large sums
    // are made smaller.
    constexpr float kLargestSum = 100000;
    const float unknown_score = smallest_score - 10.0F;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t size = tokenizers::character_in(text, begin).size;
        if (const float sum = steps[begin].score; std::abs(sum) > kLargestSum)
            for (std::size_t i = begin; i <= last; ++i)
                if (steps[i].is_reached) steps[i].score -= sum;
        const float before = steps[begin].score;
        bool has_character = false;
        matched.for_each_prefix(text.substr(begin), [&](std::int64_t id, std::size_t length) {
            if (type(id) == PieceType::unused) return;
            has_character = has_character || length == size;
            // User-defined pieces have a positive score, with which they are preferred.
            const float own = type(id) == PieceType::user_defined
                                  ? static_cast<float>(0.1 * static_cast<double>(length - 1))
                                  : score(id);
            add(begin, begin + length, id, own + before);
        });
        if (!has_character) add(begin, begin + size, unknown, unknown_score + before);
        begin += size;
    }
    std::vector<TextPiece> parts;
    for (std::size_t end = text.size(); end > 0; end = steps[end].begin)
        parts.push_back({text.substr(steps[end].begin, end - steps[end].begin), steps[end].id});
    std::ranges::reverse(parts);
    return parts;
}

std::vector<TextPiece> SentencePieceTokenizer::State::divide_bpe(std::string_view text) const {
    struct Symbol {
        std::string_view text;  // empty if it was merged into the one before
        std::int64_t previous, next;
        bool is_fixed;
    };
    struct Merge {
        float score;
        std::int64_t left, right;
        std::size_t size;
        bool operator<(const Merge& other) const {
            return score != other.score ? score < other.score : left > other.left;
        }
    };
    std::vector<Symbol> symbols;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t fixed = longest_piece(user_defined, text.substr(at));
        const std::size_t size = fixed > 0 ? fixed : tokenizers::character_in(text, at).size;
        const auto i = std::ssize(symbols);
        at += size;
        symbols.push_back(
            {text.substr(at - size, size), i - 1, at == text.size() ? -1 : i + 1, fixed > 0});
    }
    std::priority_queue<Merge> merges;
    // The two parts of merged pieces that are unused, which are divided again.
    std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> divisions;
    const auto at = [&](std::int64_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
    const auto joined = [](std::string_view left, std::string_view right) {
        return std::string_view(left.data(), left.size() + right.size());
    };
    const auto add = [&](std::int64_t left, std::int64_t right) {
        if (left < 0 || right < 0 || at(left).is_fixed || at(right).is_fixed) return;
        const std::string_view piece = joined(at(left).text, at(right).text);
        const auto found = ids.find(piece);
        if (found == ids.end()) return;
        merges.push({score(found->second), left, right, piece.size()});
        if (type(found->second) == PieceType::unused)
            divisions[piece] = {at(left).text, at(right).text};
    };
    for (std::int64_t i = 1; i < std::ssize(symbols); ++i) add(i - 1, i);
    while (!merges.empty()) {
        const auto [merge_score, left_index, right_index, size] = merges.top();
        merges.pop();
        Symbol &left = at(left_index), &right = at(right_index);
        if (left.text.empty() || right.text.empty() || left.text.size() + right.text.size() != size)
            continue;
        left.text = joined(left.text, right.text);
        left.next = right.next;
        if (right.next >= 0) at(right.next).previous = left_index;
        right.text = {};
        add(left.previous, left_index);
        add(left_index, left.next);
    }
    std::vector<TextPiece> parts;
    for (std::int64_t i = symbols.empty() ? -1 : 0; i >= 0; i = at(i).next) {
        std::vector<std::string_view> pending = {at(i).text};
        while (!pending.empty()) {
            const std::string_view part = pending.back();
            pending.pop_back();
            const auto found = ids.find(part);
            const std::int64_t id = found == ids.end() ? unknown : found->second;
            const auto division = divisions.find(part);
            if (type(id) == PieceType::unused && division != divisions.end()) {
                pending.push_back(division->second.second);
                pending.push_back(division->second.first);
            } else {
                parts.push_back({part, id});
            }
        }
    }
    return parts;
}

SentencePieceTokenizer::SentencePieceTokenizer(std::shared_ptr<const State> state)
    : state_(std::move(state)) {}

SentencePieceTokenizer SentencePieceTokenizer::from_bytes(std::string_view bytes) {
    return SentencePieceTokenizer(std::make_shared<const State>(SentencePieceModel::read(bytes)));
}

SentencePieceTokenizer SentencePieceTokenizer::from_file(const std::string& path) {
    const std::string bytes = read_file(path, kMaxModelFile);
    try {
        return from_bytes(bytes);
    } catch (const ValueError& error) {
        throw FileError(str(printable(path), ": ", error.what()));
    }
}

std::int64_t SentencePieceTokenizer::vocab_size() const { return std::ssize(state_->model.pieces); }

std::vector<std::int64_t> SentencePieceTokenizer::encode(std::string_view text) const {
    if (text.size() > kLongestText)
        throw ValueError(
            str("encode: the text has ", text.size(), " bytes, more than ", kLongestText));
    if (const std::size_t invalid = tokenizers::find_invalid_utf8(text);
        invalid != std::string_view::npos)
        throw ValueError(str("encode: the text must be UTF-8: invalid at byte ", invalid));
    const std::string normalized = state_->normalizer.normalize(text);
    const std::vector<TextPiece> parts =
        state_->model.is_bpe ? state_->divide_bpe(normalized) : state_->divide_unigram(normalized);
    std::vector<std::int64_t> ids;
    bool was_unknown = false;
    for (const TextPiece& part : parts) {
        const bool is_unknown = part.id == state_->unknown;
        if (is_unknown && state_->model.byte_fallback)
            for (const char byte : part.text)
                ids.push_back(state_->bytes[static_cast<unsigned char>(byte)]);
        else if (!is_unknown || !was_unknown)  // neighboring unknown characters are one token
            ids.push_back(part.id);
        was_unknown = is_unknown;
    }
    return ids;
}

std::string SentencePieceTokenizer::decode(std::span<const std::int64_t> ids) const {
    const SentenceNormalization& options = state_->model.normalization;
    std::string text, bytes;
    const auto add_bytes = [&] {
        for (std::size_t at = 0; at < bytes.size();) {
            const std::size_t length = character_length(bytes, at);
            text += length > 0 ? std::string_view(bytes).substr(at, length) : kReplacementCharacter;
            at += std::max<std::size_t>(length, 1);
        }
        bytes.clear();
    };
    bool removed_space = false;  // whether the space of the prefix was removed
    for (const std::int64_t id : ids) {
        std::string_view piece = id_to_piece(id);
        const PieceType type = state_->type(id);
        if (type == PieceType::byte) {
            bytes += static_cast<char>(tokenizers::byte_of_piece(piece));
            continue;
        }
        add_bytes();
        const bool is_start = !removed_space && text.empty();
        if (type == PieceType::control) continue;
        if (type == PieceType::unknown) {
            text += state_->model.unknown_text;
            continue;
        }
        if (is_start && (options.add_dummy_prefix || options.remove_extra_whitespaces) &&
            piece.starts_with(kSpace)) {
            piece.remove_prefix(kSpace.size());
            removed_space = !options.remove_extra_whitespaces;
        }
        for (std::size_t at = 0; at < piece.size();) {
            const std::size_t space = std::min(piece.find(kSpace, at), piece.size());
            text += piece.substr(at, space - at);
            if (space < piece.size()) text += ' ';
            at = std::min(space + kSpace.size(), piece.size());
        }
    }
    add_bytes();
    return state_->model.denormalization.has_map ? state_->denormalizer.normalize(text) : text;
}

const std::string& SentencePieceTokenizer::id_to_piece(std::int64_t id) const {
    if (id < 0 || id >= vocab_size())
        throw IndexError(
            str("decode: token ", id, " is out of range for a vocabulary of ", vocab_size()));
    return state_->model.pieces[static_cast<std::size_t>(id)].text;
}

std::optional<std::int64_t> SentencePieceTokenizer::piece_to_id(std::string_view piece) const {
    for (const auto* pieces : {&state_->reserved, &state_->ids})
        if (const auto found = pieces->find(piece); found != pieces->end()) return found->second;
    return std::nullopt;
}

std::int64_t SentencePieceTokenizer::unk_id() const { return state_->unknown; }

std::optional<std::int64_t> SentencePieceTokenizer::bos_id() const {
    return state_->control_id(state_->model.bos);
}

std::optional<std::int64_t> SentencePieceTokenizer::eos_id() const {
    return state_->control_id(state_->model.eos);
}

std::optional<std::int64_t> SentencePieceTokenizer::pad_id() const {
    return state_->control_id(state_->model.pad);
}

}  // namespace axle::data
