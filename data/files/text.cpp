#include "data/files/text.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "core/files/file.h"
#include "core/tree/tree.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

[[noreturn]] void throw_unknown_id(std::int64_t id, std::int64_t vocab_size) {
    throw IndexError(
        str("decode: token ", id, " is out of range for a vocabulary of ", vocab_size));
}

// Returns the bytes of the character at byte `at`. Throws ValueError if they are not valid UTF-8
// (RFC 3629), for example for an overlong form, a surrogate or a code point above U+10FFFF.
std::string_view character_at(std::string_view text, std::size_t at) {
    const auto byte = [&](std::size_t i) {
        return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
    };
    const unsigned first = byte(0);
    if (first < 0x80) return text.substr(at, 1);
    const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    unsigned low = 0x80, high = 0xBF;  // the valid range of the second byte
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
    bool valid = first >= 0xC2 && first <= 0xF4 && byte(1) >= low && byte(1) <= high;
    for (std::size_t i = 2; i < length; ++i) valid = valid && (byte(i) & 0xC0u) == 0x80u;
    if (!valid) throw ValueError(str("CharTokenizer: invalid UTF-8 at byte ", at));
    return text.substr(at, length);
}

template <class F>
void for_each_character(std::string_view text, F&& f) {
    for (std::size_t at = 0; at < text.size();) {
        const std::string_view character = character_at(text, at);
        f(character, at);
        at += character.size();
    }
}

std::uint32_t code_point(std::string_view character) {
    std::uint32_t code = static_cast<unsigned char>(character[0]);
    if (character.size() > 1) code &= 0x7Fu >> character.size();
    for (const char c : character.substr(1))
        code = code << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
    return code;
}

// Returns the name of a code point, for example "U+00E9".
std::string code_point_name(std::string_view character) {
    constexpr char kHex[] = "0123456789ABCDEF";
    std::string digits;
    for (std::uint32_t code = code_point(character); code != 0 || digits.size() < 4; code >>= 4)
        digits.insert(0, 1, kHex[code & 15]);
    return "U+" + digits;
}

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
    // UTF-8 strings sort by bytes in the same order as by code points.
    std::set<std::string_view> characters;
    std::array<bool, 128> seen = {};
    for_each_character(text, [&](std::string_view character, std::size_t) {
        if (character.size() == 1) {
            bool& known = seen[static_cast<unsigned char>(character[0])];
            if (known) return;
            known = true;
        }
        characters.insert(character);
    });
    return CharTokenizer({characters.begin(), characters.end()});
}

CharTokenizer CharTokenizer::from_json(std::string_view json) {
    const Tree tree = axle::from_json(json);
    if (tree["type"].string() != "char")
        throw ValueError(str("CharTokenizer: from_json: expected tokenizer type 'char', not ",
                             in_quotes(tree["type"].string())));
    std::vector<std::string> chars;
    for_each_character(tree["vocab"].string(),
                       [&](std::string_view c, std::size_t) { chars.emplace_back(c); });
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

std::vector<std::int64_t> CharTokenizer::encode(std::string_view text) const {
    std::vector<std::int64_t> ids;
    ids.reserve(text.size());
    for_each_character(text, [&](std::string_view character, std::size_t at) {
        const std::int64_t id = id_of(character);
        if (id < 0)
            throw ValueError(str("encode: the character is not in the vocabulary: '",
                                 printable(character), "' (", code_point_name(character),
                                 ") at byte ", at));
        ids.push_back(id);
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
