// Reads text files, and converts text to tokens and back.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace axle::data {

// Returns the contents of a file. Throws FileError if it is missing or empty.
std::string read_text(const std::string& path);

// Base class of tokenizers, which convert text to token ids and back.
class Tokenizer {
  public:
    virtual ~Tokenizer() = default;
    // Returns the number of tokens. Their ids are 0 to vocab_size() - 1.
    virtual std::int64_t vocab_size() const = 0;
    // Returns the ids of a text. Throws ValueError if a part of the text is not in the vocabulary.
    virtual std::vector<std::int64_t> encode(std::string_view text) const = 0;
    // Returns the text of token ids. Throws IndexError if an id is not in the vocabulary.
    virtual std::string decode(std::span<const std::int64_t> ids) const = 0;
};

// A tokenizer whose tokens are bytes. The id of a token is the value of the byte. Accepts any text.
class ByteTokenizer : public Tokenizer {
  public:
    std::int64_t vocab_size() const override { return 256; }
    std::vector<std::int64_t> encode(std::string_view text) const override;
    std::string decode(std::span<const std::int64_t> ids) const override;
};

// A tokenizer whose tokens are characters (Unicode code points). Text must be UTF-8; otherwise
// functions throw ValueError with the offset of the invalid byte.
class CharTokenizer : public Tokenizer {
  public:
    // Creates a tokenizer whose vocabulary is the sorted set of the characters in a text.
    static CharTokenizer from_text(std::string_view text);
    // Creates a tokenizer from the result of to_json(), for example
    // {"type": "char", "vocab": "abc"}. The id of a character is its position in "vocab". Throws
    // ValueError if the text is not JSON, the type is not "char" or a character occurs twice, and
    // IndexError if a key is missing.
    static CharTokenizer from_json(std::string_view json);
    // Returns the vocabulary as JSON text for from_json().
    std::string to_json() const;

    std::int64_t vocab_size() const override { return static_cast<std::int64_t>(chars_.size()); }
    std::vector<std::int64_t> encode(std::string_view text) const override;
    std::string decode(std::span<const std::int64_t> ids) const override;

  private:
    explicit CharTokenizer(std::vector<std::string> chars);
    // Returns the id of a character, or -1 if it is not in the vocabulary.
    std::int64_t id_of(std::string_view character) const;

    std::vector<std::string> chars_;           // the characters in UTF-8, by id
    std::array<std::int64_t, 128> ascii_ids_;  // ids of ASCII characters, for fast access
    // The ids of all other characters, by code point.
    std::unordered_map<std::uint32_t, std::int64_t> other_ids_;
};

}  // namespace axle::data
