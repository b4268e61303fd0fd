// Private to data/sentencepiece: the normalization of texts before they are divided into pieces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "data/sentencepiece/model.h"
#include "data/tokenizers/trie.h"

namespace axle::data::tokenizers {

inline constexpr std::string_view kSpace = "\xe2\x96\x81";  // stands for a space in pieces
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Returns the length of the longest piece of a trie at the start of a text, or 0.
std::size_t longest_piece(const Trie& trie, std::string_view text);

// Normalizes texts as the class Normalizer of sentencepiece. The options and the trie must outlive
// the object.
class SentenceNormalizer {
  public:
    // Pieces of `kept` are not changed; nullptr has no pieces. If `adds_suffix` is true, the space
    // of add_dummy_prefix is added to the end.
    SentenceNormalizer(const SentenceNormalization& options, const Trie* kept, bool adds_suffix)
        : options_(options), kept_(kept), adds_suffix_(adds_suffix) {}

    // Throws ValueError if the result is longer than 1 MiB plus 256 times the size of the text.
    std::string normalize(std::string_view text) const;

  private:
    // Returns the replacement of the start of a text, and the number of bytes that it replaces.
    std::pair<std::string_view, std::size_t> prefix(std::string_view text) const;

    const SentenceNormalization& options_;
    const Trie* kept_;
    bool adds_suffix_;
};

}  // namespace axle::data::tokenizers
