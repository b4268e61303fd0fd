// Reads text files, and converts text to tokens and back.
//
// Limits: text files can be larger than memory. CharTokenizer::from_file() and encode_file() read
// them in parts of 1 MiB; the tokens of a CharTokenizer then need 8 bytes of memory per 2048
// characters, or none if each character is one byte. A CharTokenizer needs up to about 200 bytes
// for each character of its vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/files/tokens.h"

namespace axle::data {

// Returns the contents of a file. Throws FileError if it is missing or empty.
std::string read_text(const std::string& path);

// Base class of tokenizers, which convert text to token ids and back.
class Tokenizer {
  public:
    virtual ~Tokenizer() = default;
    // Returns the largest id plus 1. An id below it can be without a token.
    virtual std::int64_t vocab_size() const = 0;
    // Returns the ids of a text. Throws ValueError if a part of the text is not in the vocabulary.
    virtual std::vector<std::int64_t> encode(std::string_view text) const = 0;
    // Returns the tokens of a text file. The ids equal the result of encode(). Throws FileError if
    // the file is missing or empty, or if encode() would throw. This implementation keeps all ids
    // in memory. Tokenizers that override it encode parts of the file when the tokens are read. The
    // file must then not be changed; the functions of Tokens throw FileError if it has become
    // shorter.
    virtual Tokens encode_file(const std::string& path) const;
    // Returns the text of token ids. Throws IndexError if an id is not in the vocabulary.
    virtual std::string decode(std::span<const std::int64_t> ids) const = 0;
};

// A tokenizer whose tokens are bytes. The id of a token is the value of the byte. Accepts any text.
class ByteTokenizer : public Tokenizer {
  public:
    std::int64_t vocab_size() const override { return 256; }
    std::vector<std::int64_t> encode(std::string_view text) const override;
    Tokens encode_file(const std::string& path) const override;
    std::string decode(std::span<const std::int64_t> ids) const override;
};

// A tokenizer whose tokens are characters (Unicode code points). Text must be UTF-8; otherwise
// functions throw ValueError, or FileError if they read a file, with the offset of the invalid
// byte.
class CharTokenizer : public Tokenizer {
  public:
    // Creates a tokenizer whose vocabulary is the sorted set of the characters in a text.
    static CharTokenizer from_text(std::string_view text);
    // Creates the tokenizer of a file's text, which is read in parts. Throws FileError if the file
    // is missing, empty or not UTF-8.
    static CharTokenizer from_file(const std::string& path);
    // Creates a tokenizer from the result of to_json(), for example
    // {"type": "char", "vocab": "abc"}. The id of a character is its position in "vocab". Throws
    // ValueError if the text is not JSON, the type is not "char", or "vocab" is not UTF-8 or has a
    // character twice, and IndexError if a key is missing.
    static CharTokenizer from_json(std::string_view json);
    // Returns the vocabulary as JSON text for from_json().
    std::string to_json() const;

    std::int64_t vocab_size() const override { return static_cast<std::int64_t>(chars_.size()); }
    std::vector<std::int64_t> encode(std::string_view text) const override;
    Tokens encode_file(const std::string& path) const override;
    std::string decode(std::span<const std::int64_t> ids) const override;

  private:
    explicit CharTokenizer(std::vector<std::string> chars);
    friend class CharacterFile;
    // Returns the id of a character, or -1 if it is not in the vocabulary.
    std::int64_t id_of(std::string_view character) const;
    // Returns the id of the character at byte `at` of a text. Throws ValueError if the character
    // has no id.
    std::int64_t known_id(std::string_view character, std::int64_t at) const;

    std::vector<std::string> chars_;           // the characters in UTF-8, by id
    std::array<std::int64_t, 128> ascii_ids_;  // ids of ASCII characters, for fast access
    // The ids of all other characters, by code point.
    std::unordered_map<std::uint32_t, std::int64_t> other_ids_;
};

}  // namespace axle::data
