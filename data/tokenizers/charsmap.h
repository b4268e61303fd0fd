// Private to data/tokenizers: the character maps that SentencePiece has compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace axle::data::tokenizers {

// Replacements of sequences of characters. A compiled map consists of the size of a trie in bytes,
// the trie (a double array of 32-bit units), and the replacements, each of which ends with a zero
// byte. An empty map replaces nothing.
class CharacterTrie {
  public:
    // Sets the map. Returns nullptr, or a description of the error if it is invalid.
    const char* set(std::string_view bytes);

    // Calls f(length, replacement) for each prefix of a text that has a replacement, the shortest
    // first, until f returns false. A longer prefix than kLongest bytes is not found.
    template <class F>
    void for_each_prefix(std::string_view text, F&& f) const {
        if (units_.empty()) return;
        std::size_t node = offset(units_[0]);
        for (std::size_t i = 0; i < text.size() && i < kLongest; ++i) {
            const auto byte = static_cast<unsigned char>(text[i]);
            node ^= byte;
            if (byte == 0 || node >= units_.size()) return;
            const std::uint32_t unit = units_[node];
            if (label(unit) != byte) return;
            node ^= offset(unit);
            std::string_view replacement;
            if (!has_leaf(unit)) continue;
            if (!get(node, replacement) || !f(i + 1, replacement)) return;
        }
    }

  private:
    static constexpr std::size_t kLongest = 1024;

    // The fields of a unit of the trie, as the library Darts-clone defines them.
    static bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) == 1; }
    static std::uint32_t label(std::uint32_t unit) { return unit & 0x800000FFu; }
    static std::uint32_t offset(std::uint32_t unit) { return unit >> 10 << ((unit & 0x200u) >> 6); }
    // Returns the replacement at a leaf, or false if the map is broken there.
    bool get(std::size_t node, std::string_view& replacement) const;

    std::vector<std::uint32_t> units_;
    std::string replacements_;
};

}  // namespace axle::data::tokenizers
