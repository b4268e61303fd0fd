// Private to data/tokenizers: the tokens of a file's field "added_tokens". They are found in a text
// before the model encodes the parts between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/components.h"

namespace axle::data::tokenizers {

struct AddedToken {
    std::int64_t id = 0;
    std::string content;
    bool single_word = false;  // whether the token is not found within a word
    bool lstrip = false;       // whether the white space before the token belongs to it
    bool rstrip = false;       // whether the white space after the token belongs to it
    bool normalized = false;   // whether the token is found in the normalized text
    bool special = false;
};

class AddedTokens {
  public:
    // Reads the list. Throws ValueError for invalid tokens, for duplicate ids and contents, and for
    // ids that contradict the vocabulary.
    AddedTokens(const Fields& file, const Vocabulary& vocabulary, const Normalizer* normalizer);

    // Returns the text as normalized pieces. Each added token is one piece.
    Pieces divide(std::string_view text, const Normalizer* normalizer, std::size_t limit,
                  bool offsets) const;
    // Return nullptr if there is no such token.
    const AddedToken* find(std::int64_t id) const;
    const AddedToken* find(std::string_view content) const;
    // Returns the largest id, or -1 if there are no tokens.
    std::int64_t max_id() const { return by_id_.empty() ? -1 : by_id_.rbegin()->first; }

  private:
    // The tokens by their texts and, for each byte, the lengths of the texts that begin with this
    // byte, in descending order.
    struct Patterns {
        std::unordered_map<std::string, const AddedToken*> tokens;
        std::array<std::vector<std::size_t>, 256> lengths;

        // Does nothing if the text is empty or an earlier token has the same text.
        void add(const std::string& text, const AddedToken& token);
        // Returns the longest token at the start of a text, or nullptr.
        const AddedToken* find(std::string_view text, std::size_t& length) const;
    };

    static std::vector<Part> find_all(std::string_view text, const Patterns& patterns);

    std::map<std::int64_t, AddedToken> by_id_;
    std::unordered_map<std::string_view, const AddedToken*> by_content_;
    Patterns raw_, normalized_;
};

}  // namespace axle::data::tokenizers
