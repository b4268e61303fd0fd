#include "data/files/text.h"

#include <algorithm>
#include <cstddef>

#include "core/files/file.h"
#include "core/tree/tree.h"
#include "data/files/characters.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

[[noreturn]] void throw_unknown_id(std::int64_t id, std::int64_t vocab_size) {
    throw IndexError(
        str("decode: token ", id, " is out of range for a vocabulary of ", vocab_size));
}

// Returns the name of a character's code point, for example "U+00E9".
std::string code_point_name(std::string_view character) {
    constexpr char kHex[] = "0123456789ABCDEF";
    std::string digits;
    for (std::uint32_t code = code_point(character); code != 0 || digits.size() < 4; code >>= 4)
        digits.insert(0, 1, kHex[code & 15]);
    return "U+" + digits;
}

// The set of characters in a text. Characters can be added in any order.
class CharacterSet {
  public:
    void add(std::string_view character) {
        const std::uint32_t code = code_point(character);
        if (code >= is_in_.size()) is_in_.resize(code + 1);
        if (is_in_[code]) return;
        is_in_[code] = true;
        codes_.push_back(code);
    }
    // Returns the characters in UTF-8, sorted by code point.
    std::vector<std::string> sorted() const {
        std::vector<std::uint32_t> codes = codes_;
        std::sort(codes.begin(), codes.end());
        std::vector<std::string> characters;
        for (const std::uint32_t code : codes) characters.push_back(utf8(code));
        return characters;
    }

  private:
    std::vector<bool> is_in_;
    std::vector<std::uint32_t> codes_;
};

}  // namespace

std::string read_text(const std::string& path) {
    std::string text = read_file(path);
    if (text.empty()) throw FileError(str(printable(path), ": the file is empty"));
    return text;
}

std::vector<std::int64_t> ByteTokenizer::encode(std::string_view text) const {
    std::vector<std::int64_t> ids(text.size());
    std::transform(text.begin(), text.end(), ids.begin(),
                   [](char c) { return static_cast<unsigned char>(c); });
    return ids;
}

std::string ByteTokenizer::decode(std::span<const std::int64_t> ids) const {
    std::string text;
    text.reserve(ids.size());
    for (const std::int64_t id : ids) {
        if (id < 0 || id > 255) throw_unknown_id(id, 256);
        text += static_cast<char>(id);
    }
    return text;
}

CharTokenizer::CharTokenizer(std::vector<std::string> chars) : chars_(std::move(chars)) {
    ascii_ids_.fill(-1);
    std::int64_t id = 0;
    for (const std::string& character : chars_) {
        if (id_of(character) >= 0)
            throw ValueError(str("CharTokenizer: duplicate character in the vocabulary: ",
                                 in_quotes(character)));
        if (character.size() == 1) {
            ascii_ids_[static_cast<unsigned char>(character[0])] = id++;
        } else {
            other_ids_[code_point(character)] = id++;
        }
    }
}

CharTokenizer CharTokenizer::from_text(std::string_view text) {
    CharacterSet characters;
    for_each_character("CharTokenizer", text, 0, [&](std::string_view character, std::int64_t) {
        characters.add(character);
    });
    return CharTokenizer(characters.sorted());
}

CharTokenizer CharTokenizer::from_file(const std::string& path) {
    CharacterSet characters;
    const TextFile file(path);
    file.for_each_character(0, [&](std::string_view character, std::int64_t) {
        return characters.add(character), true;
    });
    return CharTokenizer(characters.sorted());
}

CharTokenizer CharTokenizer::from_json(std::string_view json) {
    const Tree tree = axle::from_json(json);
    if (tree["type"].string() != "char")
        throw ValueError(str("CharTokenizer: from_json: expected tokenizer type 'char', not ",
                             in_quotes(tree["type"].string())));
    std::vector<std::string> chars;
    for_each_character("CharTokenizer", tree["vocab"].string(), 0,
                       [&](std::string_view c, std::int64_t) { chars.emplace_back(c); });
    return CharTokenizer(std::move(chars));
}

std::string CharTokenizer::to_json() const {
    std::string vocab;
    for (const std::string& character : chars_) vocab += character;
    return axle::to_json(Tree{{"type", "char"}, {"vocab", vocab}});
}

std::int64_t CharTokenizer::id_of(std::string_view character) const {
    if (character.size() == 1) return ascii_ids_[static_cast<unsigned char>(character[0])];
    const auto found = other_ids_.find(code_point(character));
    return found == other_ids_.end() ? -1 : found->second;
}

std::int64_t CharTokenizer::known_id(std::string_view character, std::int64_t at) const {
    const std::int64_t id = id_of(character);
    if (id < 0)
        throw ValueError(str("encode: the character is not in the vocabulary: '",
                             printable(character), "' (", code_point_name(character), ") at byte ",
                             at));
    return id;
}

std::vector<std::int64_t> CharTokenizer::encode(std::string_view text) const {
    std::vector<std::int64_t> ids;
    ids.reserve(text.size());
    for_each_character("CharTokenizer", text, 0, [&](std::string_view character, std::int64_t at) {
        ids.push_back(known_id(character, at));
    });
    return ids;
}

std::string CharTokenizer::decode(std::span<const std::int64_t> ids) const {
    std::string text;
    text.reserve(ids.size());
    for (const std::int64_t id : ids) {
        if (id < 0 || id >= vocab_size()) throw_unknown_id(id, vocab_size());
        text += chars_[static_cast<std::size_t>(id)];
    }
    return text;
}

}  // namespace axle::data
