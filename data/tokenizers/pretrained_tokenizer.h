// Tokenizers of Hugging Face models, read from tokenizer.json.
//
// Results equal the results of the tokenizers library 0.2x, with these limits: if utf8proc is
// version 2.8, characters have the properties of Unicode 14, so characters that were added to
// Unicode later can be classified in another way. Files larger than 256 MiB, BPE dropout, and
// components that are not listed in docs/tokenizers.md are errors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/files/text.h"

namespace axle::data {

// A range of characters (Unicode code points) of a text.
struct CharacterRange {
    std::int64_t begin = 0, end = 0;
    bool operator==(const CharacterRange&) const = default;
};

// The tokens of a text or of a pair of texts. All vectors but `overflow` have one element per
// token.
struct Encoding {
    std::vector<std::int64_t> ids;
    std::vector<std::int64_t> type_ids;        // usually 0 for the first text, 1 for the second
    std::vector<std::int64_t> attention_mask;  // 0 for padding, otherwise 1
    // 1 for padding and for tokens that the post-processor added, otherwise 0.
    std::vector<std::int64_t> special_tokens_mask;
    std::vector<std::string> tokens;
    // The characters of each token in its text; {0, 0} if special_tokens_mask is 1.
    std::vector<CharacterRange> offsets;
    // The index of the word of each token in its text, or -1 if special_tokens_mask is 1.
    std::vector<std::int64_t> word_ids;
    // The parts that truncation removed. Neighboring parts share `stride` tokens. If both texts of
    // a pair are truncated, these are all combinations of their parts, at most 4095.
    std::vector<Encoding> overflow;
};

enum class TruncationStrategy { longest_first, only_first, only_second };
enum class Side { right, left };

struct Truncation {
    std::int64_t max_length = 512;  // number of tokens, with special tokens
    // Which text of a pair is shortened. longest_first shortens the longer one first.
    TruncationStrategy strategy = TruncationStrategy::longest_first;
    // The number of tokens that a part of Encoding::overflow shares with the part before it.
    std::int64_t stride = 0;
    Side side = Side::right;
};

struct Padding {
    // The number of tokens to which shorter encodings are padded. If it is 0, encodings are padded
    // to the longest encoding of the batch.
    std::int64_t length = 0;
    std::int64_t multiple_of = 0;  // if positive, the length is rounded up to a multiple of it
    Side side = Side::right;
    std::int64_t id = 0;
    std::int64_t type_id = 0;
    std::string token = "[PAD]";
};

struct EncodeOptions {
    bool add_special_tokens = true;  // as the post-processor of the file defines
    std::optional<Truncation> truncation = std::nullopt;
    std::optional<Padding> padding = std::nullopt;
};

// A text, or a pair of texts.
struct TextPair {
    TextPair(std::string first_) : first(std::move(first_)) {}  // NOLINT: implicit
    TextPair(std::string_view first_) : first(first_) {}        // NOLINT: implicit
    TextPair(const char* first_) : first(first_) {}             // NOLINT: implicit
    TextPair(std::string first_, std::string second_)
        : first(std::move(first_)), second(std::move(second_)) {}

    std::string first;
    std::optional<std::string> second;
};

// A tokenizer that is defined by a file tokenizer.json. Copies share the vocabulary. Several
// threads can call the const functions of the same object.
//
// Functions that encode throw ValueError if a text is not UTF-8 (with the offset of the invalid
// byte) or has 1 GiB or more, if normalization makes it much longer, if a word is unknown and the
// model has no token for unknown words, if truncation makes too many combinations of parts, or if a
// regular expression of the file needs too much time or memory. BPE models without unk_token leave
// unknown characters out. Zero bytes are text.
class PretrainedTokenizer : public Tokenizer {
  public:
    // Reads a tokenizer.json. Throws FileError if the file is missing, larger than 256 MiB or
    // invalid, or if it has components or fields that are not supported. The message contains the
    // place in the file.
    static PretrainedTokenizer from_file(const std::string& path);
    // Reads tokenizer.json in a folder and, if there is one, tokenizer_config.json, which defines
    // special_tokens(). Throws FileError for the same errors, and if tokenizer_config.json is
    // invalid or larger than 16 MiB.
    static PretrainedTokenizer from_pretrained(const std::string& folder);
    // Creates a tokenizer from the contents of a tokenizer.json. Throws ValueError if they are
    // invalid.
    static PretrainedTokenizer from_json(std::string_view json);

    // Returns the largest id plus 1, with added tokens.
    std::int64_t vocab_size() const override;
    // Returns the ids of a text, with special tokens.
    std::vector<std::int64_t> encode(std::string_view text) const override;
    // Returns the ids of a text. Faster than encode() with options, because it computes only ids.
    std::vector<std::int64_t> encode_ids(std::string_view text, bool add_special_tokens) const;
    // Return the encoding of a text or of a pair. Throw ValueError if the texts cannot be truncated
    // or padded as the options require.
    Encoding encode(std::string_view text, const EncodeOptions& options) const;
    Encoding encode(std::string_view text, std::string_view pair,
                    const EncodeOptions& options) const;
    // Returns the encodings of all texts. Padding with length 0 makes all of them equally long.
    // Throws the errors of encode().
    std::vector<Encoding> encode_batch(std::span<const TextPair> texts,
                                       const EncodeOptions& options = {}) const;

    // Return the text of token ids, without special tokens unless skip_special_tokens is false.
    // Bytes that are not UTF-8 become U+FFFD. Throw IndexError if an id has no token, and
    // ValueError if replacements of the decoder make the text longer than 1 GiB, or if a regular
    // expression of the file needs too much time.
    std::string decode(std::span<const std::int64_t> ids) const override;
    std::string decode(std::span<const std::int64_t> ids, bool skip_special_tokens) const;

    // Returns the id of a token, if the token exists.
    std::optional<std::int64_t> token_to_id(std::string_view token) const;
    // Returns the token of an id, if the id has one.
    std::optional<std::string> id_to_token(std::int64_t id) const;
    // Returns whether decode() skips the id.
    bool is_special(std::int64_t id) const;
    // Returns the number of special tokens that are added to a text or to a pair.
    std::int64_t num_special_tokens(bool is_pair = false) const;
    // Returns the named special tokens of tokenizer_config.json, for example
    // {"eos_token", "</s>"}. Empty after from_file() and from_json().
    const std::map<std::string, std::string>& special_tokens() const;
    // Return the truncation and padding of the file, if it has them. They are not applied unless
    // they are passed to encode().
    const std::optional<Truncation>& truncation() const;
    const std::optional<Padding>& padding() const;

  private:
    struct State;
    explicit PretrainedTokenizer(std::shared_ptr<const State> state);
    std::shared_ptr<const State> state_;
};

// Decodes tokens one by one, for example while a model generates them. The parts of the text that
// the functions return are whole characters.
class DecodeStream {
  public:
    explicit DecodeStream(PretrainedTokenizer tokenizer, bool skip_special_tokens = true);
    // Returns the text that became complete with this token; often empty within a character of
    // several bytes. Throws IndexError if the id has no token.
    std::string next(std::int64_t id);
    // Returns the text that is left at the end, with U+FFFD for incomplete characters, and begins a
    // new text.
    std::string finish();

  private:
    PretrainedTokenizer tokenizer_;
    bool skip_special_tokens_;
    std::vector<std::int64_t> ids_;  // the last tokens that were returned, and those after them
    std::size_t returned_ = 0;       // number of ids whose text was returned
    std::string prefix_;             // the text of these ids
};

}  // namespace axle::data
