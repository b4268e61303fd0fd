// Text: reading it, and turning it into token ids and back.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace axle::inline v0::data {

// A whole file as it is. FileError if it is missing or empty.
std::string read_text(const std::string& path);

class Tokenizer {
  public:
    virtual ~Tokenizer() = default;
    // Ids are in [0, vocab_size()).
    virtual std::int64_t vocab_size() const = 0;
    // ValueError for text that the vocabulary doesn't cover.
    virtual std::vector<std::int64_t> encode(std::string_view text) const = 0;
    // IndexError for an id beyond the vocabulary.
    virtual std::string decode(std::span<const std::int64_t> ids) const = 0;
};

// A token is a byte, its id the byte's value. Takes any text.
class ByteTokenizer : public Tokenizer {
  public:
    std::int64_t vocab_size() const override { return 256; }
    std::vector<std::int64_t> encode(std::string_view text) const override;
    std::string decode(std::span<const std::int64_t> ids) const override;
};

// A token is a character (a Unicode code point). All texts are UTF-8; what isn't is a ValueError
// with the number of the byte.
class CharTokenizer : public Tokenizer {
  public:
    // The characters of a text, sorted.
    static CharTokenizer from_text(std::string_view text);
    // What to_json gave: {"type": "char", "vocab": "\n !,"}, ids in the order of the characters.
    static CharTokenizer from_json(std::string_view json);
    std::string to_json() const;

    std::int64_t vocab_size() const override { return static_cast<std::int64_t>(chars_.size()); }
    std::vector<std::int64_t> encode(std::string_view text) const override;
    std::string decode(std::span<const std::int64_t> ids) const override;

  private:
    explicit CharTokenizer(std::vector<std::string> chars);
    // -1 if there is none.
    std::int64_t id_of(std::string_view character) const;

    std::vector<std::string> chars_;                             // UTF-8 of each id
    std::array<std::int64_t, 128> ascii_ids_;                    // the fast path
    std::unordered_map<std::uint32_t, std::int64_t> other_ids_;  // by code point
};

}  // namespace axle::inline v0::data
