// Vocabularies, and the models that look up words: WordPiece and WordLevel.
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/files/file.h"
#include "data/tokenizers/components.h"
#include "data/tokenizers/unicode.h"
#include "kernels/error.h"

namespace axle::data::tokenizers {
namespace {

// Finds the longest token at the start of a word, then the longest one of the rest with the prefix
// (by default "##"), and so on. A word that cannot be divided in this way or has more than
// max_input_chars_per_word characters is one unknown token.
class WordPiece : public Model {
  public:
    explicit WordPiece(const Fields& fields)
        : Model(Vocabulary::from_ids(fields, "vocab")),
          unknown_(fields.text("unk_token", "[UNK]")),
          prefix_(fields.text("continuing_subword_prefix", "##")) {
        if (fields.has("max_input_chars_per_word"))
            max_characters_ = fields.integer("max_input_chars_per_word", 0,
                                             std::numeric_limits<std::int64_t>::max());
        fields.allow_only(
            {"vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"});
    }

    void encode(std::string_view piece, std::vector<Token>& out, Scratch*) const override {
        const std::size_t before = out.size();
        const bool is_short = static_cast<std::int64_t>(count_characters(piece)) <= max_characters_;
        if (is_short && divide(piece, out)) return;
        out.resize(before);
        const auto id = vocabulary().id(unknown_);
        if (!id)
            throw ValueError(str("encode: the word ", in_quotes(piece),
                                 " is unknown and the vocabulary lacks the token ",
                                 in_quotes(unknown_)));
        out.push_back({*id, {0, static_cast<std::uint32_t>(piece.size())}});
    }

  private:
    bool divide(std::string_view word, std::vector<Token>& out) const {
        std::string key;
        for (std::size_t begin = 0; begin < word.size();) {
            key.assign(begin == 0 ? "" : prefix_);
            const std::size_t head = key.size();
            if (head >= vocabulary().longest() && head > 0) return false;
            key.append(word.substr(begin, vocabulary().longest() - head));
            std::optional<std::int64_t> id;
            while (key.size() > head) {
                // A key that ends within a character is not a token.
                const std::size_t end = begin + key.size() - head;
                const bool is_whole =
                    end == word.size() || (static_cast<unsigned char>(word[end]) & 0xC0u) != 0x80u;
                if (is_whole && (id = vocabulary().id(key))) break;
                key.pop_back();
            }
            if (!id) return false;
            const std::size_t end = begin + key.size() - head;
            out.push_back(
                {*id, {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)}});
            begin = end;
        }
        return true;
    }

    std::string unknown_, prefix_;
    std::int64_t max_characters_ = 100;
};

// Looks up whole words.
class WordLevel : public Model {
  public:
    explicit WordLevel(const Fields& fields)
        : Model(Vocabulary::from_ids(fields, "vocab")), unknown_(fields.text("unk_token", "")) {
        fields.allow_only({"vocab", "unk_token"});
    }
    void encode(std::string_view piece, std::vector<Token>& out, Scratch*) const override {
        auto id = vocabulary().id(piece);
        if (!id) id = vocabulary().id(unknown_);
        if (!id && unknown_.empty())
            throw ValueError(str("encode: the word ", in_quotes(piece),
                                 " is unknown and the model has no unk_token"));
        if (!id)
            throw ValueError(str("encode: the word ", in_quotes(piece),
                                 " is unknown and the vocabulary lacks the token ",
                                 in_quotes(unknown_)));
        out.push_back({*id, {0, static_cast<std::uint32_t>(piece.size())}});
    }

  private:
    std::string unknown_;
};

// Returns the type of a model. Old files do not have it.
std::string type_of(const Fields& fields) {
    if (fields.has("type")) return fields.text("type");
    if (fields.has("merges")) return "BPE";
    if (fields.has("vocab") && fields.value("vocab").is_list()) return "Unigram";
    return fields.has("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

}  // namespace

Vocabulary Vocabulary::from_ids(const Fields& fields, std::string_view key) {
    const Tree& object = fields.value(key);
    const std::string path = fields.path_of(key);
    if (!object.is_map()) fail_at(path, "expected an object, not " + kind_name(object));
    std::int64_t max_id = -1;
    for (const auto& [token, id] : object.entries()) {
        if (!id.is_integer() || id.integer() < 0 || id.integer() > kMaxId)
            fail_at(path,
                    str("the id of the token ", in_quotes(token), " must be an integer in [0, ",
                        kMaxId, "], not ", printable(str(id))));
        max_id = std::max(max_id, id.integer());
    }
    const auto count = static_cast<std::int64_t>(object.entries().size());
    if (max_id > 16 * count + 65536)
        fail_at(path, str("the largest id is ", max_id, ", but there are only ", count, " tokens"));
    Vocabulary vocabulary;
    vocabulary.tokens_.resize(static_cast<std::size_t>(max_id + 1));
    vocabulary.is_used_.resize(vocabulary.tokens_.size());
    vocabulary.ids_.reserve(object.entries().size());
    for (const auto& [token, id] : object.entries()) {
        const auto i = static_cast<std::size_t>(id.integer());
        if (vocabulary.is_used_[i])
            fail_at(path, str("the tokens ", in_quotes(vocabulary.tokens_[i]), " and ",
                              in_quotes(token), " have the same id, ", i));
        vocabulary.is_used_[i] = true;
        vocabulary.tokens_[i] = token;
        vocabulary.ids_.emplace(token, id.integer());
        vocabulary.longest_ = std::max(vocabulary.longest_, token.size());
    }
    vocabulary.count_ = object.entries().size();
    return vocabulary;
}

void Vocabulary::add(std::string token) {
    ids_[token] = static_cast<std::int64_t>(tokens_.size());
    longest_ = std::max(longest_, token.size());
    tokens_.push_back(std::move(token));
    is_used_.push_back(true);
    ++count_;
}

std::optional<std::int64_t> Vocabulary::id(std::string_view token) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
}

const std::string* Vocabulary::token(std::int64_t id) const {
    if (id < 0 || id > max_id() || !is_used_[static_cast<std::size_t>(id)]) return nullptr;
    return &tokens_[static_cast<std::size_t>(id)];
}

std::optional<std::int64_t> Vocabulary::byte_id(unsigned char byte) const {
    constexpr char kHex[] = "0123456789ABCDEF";
    const std::array<char, 6> name = {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
    return id(std::string_view(name.data(), name.size()));
}

std::unique_ptr<Model> make_model(const Fields& fields) {
    const std::string type = type_of(fields);
    if (type == "WordPiece") return std::make_unique<WordPiece>(fields);
    if (type == "WordLevel") return std::make_unique<WordLevel>(fields);
    if (type == "BPE") return make_bpe(fields);
    if (type == "Unigram") return make_unigram(fields);
    fields.fail("unknown model " + in_quotes(type));
}

}  // namespace axle::data::tokenizers
