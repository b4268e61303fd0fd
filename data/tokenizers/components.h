// Private to data/tokenizers: the components of a tokenizer. The functions make_*() create a
// component from its object in tokenizer.json. They throw ValueError, with the place in the file,
// if the component is unknown or its fields are invalid. Several threads can use the same
// component.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/tree/tree.h"
#include "data/tokenizers/aligned_text.h"
#include "data/tokenizers/fields.h"
#include "data/tokenizers/regex.h"

namespace axle::data::tokenizers {

// Changes a text before it is divided.
class Normalizer {
  public:
    virtual ~Normalizer() = default;
    virtual void normalize(AlignedText& text) const = 0;
};
std::unique_ptr<Normalizer> make_normalizer(const Fields& fields);
// Creates the normalizer of a compiled SentencePiece character map (charsmap.cpp).
std::unique_ptr<Normalizer> make_character_map(const Fields& fields);

// Divides a text into pieces that the model encodes one by one.
class PreTokenizer {
  public:
    virtual ~PreTokenizer() = default;
    virtual void divide(Pieces& pieces) const = 0;
};
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Fields& fields);

// Converts tokens to text. The text is the concatenation of the results.
class Decoder {
  public:
    virtual ~Decoder() = default;
    virtual void decode(std::vector<std::string>& tokens) const = 0;
};
std::unique_ptr<Decoder> make_decoder(const Fields& fields);

// A token of a piece, with its bytes in the piece.
struct Token {
    std::int64_t id;
    Range range;
    bool is_text = false;  // whether the token's text is these bytes, not the vocabulary's
};

// The tokens of a model and their ids.
class Vocabulary {
  public:
    // The largest id that a file can contain.
    static constexpr std::int64_t kMaxId = INT32_MAX - 1;

    // Reads an object {"token": id}. Throws ValueError for invalid or duplicate ids, and if the
    // largest id exceeds 16 times the number of tokens plus 65536.
    static Vocabulary from_ids(const Fields& fields, std::string_view key);
    // Adds a token with the next id. If tokens are equal, id() returns the id of the last one.
    void add(std::string token);

    std::size_t size() const { return count_; }
    std::optional<std::int64_t> id(std::string_view token) const;
    // Returns the token of an id, or nullptr if there is none.
    const std::string* token(std::int64_t id) const;
    // Returns the largest id, or -1 if the vocabulary is empty.
    std::int64_t max_id() const { return static_cast<std::int64_t>(tokens_.size()) - 1; }
    // Returns the number of bytes of the longest token.
    std::size_t longest() const { return longest_; }
    // Returns the id of the token <0xNN> of a byte.
    std::optional<std::int64_t> byte_id(unsigned char byte) const;

  private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const {
            return std::hash<std::string_view>()(text);
        }
    };
    std::vector<std::string> tokens_;  // by id
    std::vector<bool> is_used_;        // whether an id has a token
    std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> ids_;
    std::size_t count_ = 0, longest_ = 0;
};

// Memory of a model that one thread uses at a time, for example a cache.
class Scratch {
  public:
    virtual ~Scratch() = default;
};

// Converts a piece to tokens.
class Model {
  public:
    explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
    virtual ~Model() = default;
    const Vocabulary& vocabulary() const { return vocabulary_; }
    virtual std::unique_ptr<Scratch> make_scratch() const { return nullptr; }
    // Appends the tokens of a piece, which is not empty. Throws ValueError if the piece has an
    // unknown part and the model has no token for it; a BPE model without unk_token leaves the part
    // out instead.
    virtual void encode(std::string_view piece, std::vector<Token>& out,
                        Scratch* scratch) const = 0;

  private:
    Vocabulary vocabulary_;
};
std::unique_ptr<Model> make_model(const Fields& fields);
std::unique_ptr<Model> make_bpe(const Fields& fields);
std::unique_ptr<Model> make_unigram(const Fields& fields);

// Returns the pattern of a component, which is a text or a regular expression.
Regex make_pattern(const Fields& fields);

}  // namespace axle::data::tokenizers
