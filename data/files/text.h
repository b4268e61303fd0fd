// Text files and tokenizers.
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

// Converts text to token ids and back.
class Tokenizer {
  public:
    virtual ~Tokenizer() = default;
    // Ids are in [0, vocab_size()).
    virtual std::int64_t vocab_size() const = 0;
    // Throws ValueError if the vocabulary does not cover the text.
    virtual std::vector<std::int64_t> encode(std::string_view text) const = 0;
    // Throws IndexError for an id outside the vocabulary.
    virtual std::string decode(std::span<const std::int64_t> ids) const = 0;
};

// A tokenizer whose tokens are bytes. The id is the byte's value. Accepts any text.
class ByteTokenizer : public Tokenizer {
  public:
    std::int64_t vocab_size() const override { return 256; }
    std::vector<std::int64_t> encode(std::string_view text) const override;
    std::string decode(std::span<const std::int64_t> ids) const override;
};

// A tokenizer whose tokens are characters (Unicode code points). Text must be UTF-8; invalid text
// throws ValueError with the byte's offset.
class CharTokenizer : public Tokenizer {
  public:
    // Builds the vocabulary from the characters of a text, sorted.
    static CharTokenizer from_text(std::string_view text);
    // Reads the result of to_json(): {"type": "char", "vocab": "\n !,"}; ids are positions in
    // "vocab".
    static CharTokenizer from_json(std::string_view json);
    std::string to_json() const;

    std::int64_t vocab_size() const override { return static_cast<std::int64_t>(chars_.size()); }
    std::vector<std::int64_t> encode(std::string_view text) const override;
    std::string decode(std::span<const std::int64_t> ids) const override;

  private:
    explicit CharTokenizer(std::vector<std::string> chars);
    // Returns -1 if the character is not in the vocabulary.
    std::int64_t id_of(std::string_view character) const;

    std::vector<std::string> chars_;                             // UTF-8 by id
    std::array<std::int64_t, 128> ascii_ids_;                    // the fast path
    std::unordered_map<std::uint32_t, std::int64_t> other_ids_;  // by code point
};

}  // namespace axle::data
