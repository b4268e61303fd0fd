// Private to data/tokenizers: truncation, special tokens and padding of encodings.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizers/fields.h"
#include "data/tokenizers/pretrained_tokenizer.h"

namespace axle::data::tokenizers {

// Adds special tokens to encodings, and corrects the offsets of byte-level tokens.
class PostProcessor {
  public:
    PostProcessor() = default;
    // Reads the component. Throws ValueError if it is unknown or invalid, or if a special token has
    // an id above `max_id`.
    PostProcessor(const Fields& fields, std::int64_t max_id);

    // Returns the number of special tokens that are added.
    std::int64_t count(bool is_pair) const;
    // Returns the processed encoding of a text or of a pair. The type ids of the encodings must be
    // 0.
    Encoding process(Encoding first, std::optional<Encoding> second, bool add_special_tokens) const;

  private:
    // A part of the result: the text 0 or 1, or special tokens.
    struct Part {
        int text = -1;
        std::int64_t type_id = 0;
        std::vector<std::int64_t> ids;
        std::vector<std::string> tokens;
    };
    using Template = std::vector<Part>;

    void read(const Fields& fields, std::int64_t max_id);
    void read_bert(const Fields& fields, std::int64_t max_id, bool is_roberta);
    void read_template(const Fields& fields, std::int64_t max_id);
    void set_templates(const Fields& fields, Template single, Template pair);

    std::optional<Template> single_, pair_;
    // The values of add_prefix_space of the components that trim offsets.
    std::vector<bool> trims_;
    bool is_roberta_ = false;
};

// Keeps max_length tokens and moves the other tokens, in parts, to `overflow`. Throws ValueError if
// the stride is not below max_length, unless max_length is 0 or the encoding is short enough.
void truncate(Encoding& encoding, std::int64_t max_length, const Truncation& options);
// Truncates a text or a pair to at most max_length tokens. Also throws ValueError if the texts that
// the strategy shortens are missing or too short.
void truncate(Encoding& first, std::optional<Encoding>& second, std::int64_t max_length,
              const Truncation& options);
// Adds padding to encodings and their overflow. Throws ValueError if options.length or
// options.multiple_of is negative.
void pad(std::span<Encoding> encodings, const Padding& options);

// Read the fields "truncation" and "padding" of a file.
Truncation read_truncation(const Fields& fields);
Padding read_padding(const Fields& fields);

}  // namespace axle::data::tokenizers
