// The normalizer "Precompiled": a character map that SentencePiece has compiled, in base64.
#include "data/tokenizers/charsmap.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/files/file.h"
#include "data/tokenizers/components.h"
#include "data/tokenizers/unicode.h"
#include "kernels/error.h"

namespace axle::data::tokenizers {
namespace {

std::string decode_base64(const Fields& fields, std::string_view text) {
    static constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    while (text.ends_with('=')) text.remove_suffix(1);
    std::string bytes;
    std::uint32_t bits = 0, count = 0;
    for (const char c : text) {
        const std::size_t digit = kDigits.find(c);
        if (digit == std::string_view::npos) fields.fail("the character map is not base64");
        bits = bits << 6 | static_cast<std::uint32_t>(digit);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        bytes += static_cast<char>(bits >> count & 0xFFu);
    }
    return bytes;
}

class CharacterMap : public Normalizer {
  public:
    explicit CharacterMap(const Fields& fields) {
        fields.allow_only({"precompiled_charsmap"});
        const std::string bytes = decode_base64(fields, fields.text("precompiled_charsmap"));
        if (const char* const error = trie_.set(bytes)) fields.fail(error);
    }

    void normalize(AlignedText& text) const override {
        const std::string_view old = text.text();
        std::vector<Change> changes;
        bool is_changed = false;
        for (std::size_t at = 0; at < old.size();) {
            const std::string_view grapheme = old.substr(at, grapheme_size(old.substr(at)));
            at += grapheme.size();
            std::string_view to;
            if (grapheme.size() < kLongest && find(grapheme, to)) {
                replace(grapheme, to, changes);
                is_changed = true;
                continue;
            }
            for (std::size_t i = 0; i < grapheme.size();) {
                const Character c = character_in(grapheme, i);
                if (find(grapheme.substr(i, c.size), to)) {
                    replace(grapheme.substr(i, c.size), to, changes);
                    is_changed = true;
                } else {
                    changes.push_back({c.code, 0});
                }
                i += c.size;
            }
        }
        if (is_changed) text.transform(changes);
    }

  private:
    static constexpr std::size_t kLongest = 6;  // shorter grapheme clusters are looked up whole

    // Finds the replacement of the shortest prefix of a text that has one. As in the tokenizers
    // library, the caller replaces the whole text by it.
    bool find(std::string_view text, std::string_view& to) const {
        bool is_found = false;
        trie_.for_each_prefix(text, [&](std::size_t, std::string_view replacement) {
            is_found = true;
            to = replacement;
            return false;
        });
        return is_found;
    }

    // Adds the characters of `to`. If there are more than in `from`, the last ones are inserted. If
    // there are fewer, the last one takes the place of all remaining characters of `from`.
    static void replace(std::string_view from, std::string_view to, std::vector<Change>& changes) {
        const auto before = static_cast<std::int32_t>(count_characters(from));
        const auto after = static_cast<std::int32_t>(count_characters(to));
        std::int32_t i = 0;
        for (std::size_t at = 0; at < to.size(); ++i) {
            const Character c = character_in(to, at);
            changes.push_back({c.code, i >= before ? 1 : 0});
            at += c.size;
        }
        if (after < before && !changes.empty()) changes.back().change += after - before;
    }

    CharacterTrie trie_;
};

}  // namespace

const char* CharacterTrie::set(std::string_view bytes) {
    std::uint32_t size = 0;
    if (bytes.size() >= 4) std::memcpy(&size, bytes.data(), 4);
    if (bytes.size() < 4 || size % 4 != 0 || size > bytes.size() - 4)
        return "the character map is truncated";
    units_.resize(size / 4);
    if (size > 0) std::memcpy(units_.data(), bytes.data() + 4, size);
    replacements_ = bytes.substr(4 + size);
    if (find_invalid_utf8(replacements_) != std::string::npos)
        return "the replacements of the character map are not UTF-8";
    return nullptr;
}

bool CharacterTrie::get(std::size_t node, std::string_view& replacement) const {
    if (node >= units_.size()) return false;
    const std::size_t begin = units_[node] & 0x7FFFFFFFu;
    if (begin > replacements_.size()) return false;
    replacement = std::string_view(replacements_).substr(begin);
    replacement = replacement.substr(0, replacement.find('\0'));
    return find_invalid_utf8(replacement) == std::string_view::npos;
}

std::unique_ptr<Normalizer> make_character_map(const Fields& fields) {
    return std::make_unique<CharacterMap>(fields);
}

}  // namespace axle::data::tokenizers
