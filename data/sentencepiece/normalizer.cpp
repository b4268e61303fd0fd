#include "data/sentencepiece/normalizer.h"

#include <algorithm>
#include <cstdint>

#include "data/files/characters.h"
#include "kernels/error.h"

namespace axle::data::tokenizers {

std::size_t longest_piece(const Trie& trie, std::string_view text) {
    std::size_t longest = 0;
    trie.for_each_prefix(text, [&](std::int64_t, std::size_t length) { longest = length; });
    return longest;
}

std::string SentenceNormalizer::normalize(std::string_view text) const {
    const std::size_t limit =
        std::min<std::size_t>(UINT32_MAX, (std::size_t{1} << 20) + 256 * text.size());
    const bool removes = options_.remove_extra_whitespaces;
    while (removes && !text.empty()) {
        const auto [part, size] = prefix(text);
        if (part != " ") break;
        text.remove_prefix(size);
    }
    if (text.empty()) return "";
    const std::string_view space = options_.escape_whitespaces ? kSpace : " ";
    std::string result;
    if (!adds_suffix_ && options_.add_dummy_prefix) result += space;
    bool is_after_space = removes;
    while (!text.empty()) {
        auto [part, size] = prefix(text);
        text.remove_prefix(size);
        while (is_after_space && part.starts_with(' ')) part.remove_prefix(1);
        for (const char c : part) {
            if (c == ' ')
                result += space;
            else
                result += c;
        }
        if (result.size() > limit)
            throw ValueError(
                str("encode: normalization makes the text longer than ", limit, " bytes"));
        if (!part.empty()) is_after_space = removes && part.ends_with(' ');
    }
    while (removes && result.ends_with(space)) result.resize(result.size() - space.size());
    if (adds_suffix_ && options_.add_dummy_prefix) result += space;
    return result;
}

std::pair<std::string_view, std::size_t> SentenceNormalizer::prefix(std::string_view text) const {
    if (kept_ != nullptr)
        if (const std::size_t size = longest_piece(*kept_, text); size > 0)
            return {text.substr(0, size), size};
    std::size_t size = 0;
    std::string_view replacement;
    if (options_.has_map)
        options_.map.for_each_prefix(text, [&](std::size_t length, std::string_view to) {
            size = length;
            replacement = to;
            return true;
        });
    if (size > 0) return {replacement, size};
    // A replacement can end within a character.
    const std::size_t length = character_length(text, 0);
    return length > 0 ? std::pair(text.substr(0, length), length)
                      : std::pair(kReplacementCharacter, std::size_t{1});
}

}  // namespace axle::data::tokenizers
