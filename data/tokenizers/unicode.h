// Private to data/tokenizers: properties and normalization of characters.
//
// The properties come from the Unicode version of utf8proc. They differ from the properties that
// the tokenizers library uses for characters that one of the two Unicode versions does not have. A
// few characters whose category has changed have the category that the library uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace axle::data::tokenizers {

struct Character {
    std::uint32_t code;
    std::uint32_t size;  // bytes in UTF-8
};

// Returns the character at byte `at` of a text, which must be valid UTF-8.
Character character_in(std::string_view text, std::size_t at);
// Returns the number of characters of a text, which must be valid UTF-8.
std::size_t count_characters(std::string_view text);
void append_utf8(std::string& text, std::uint32_t code);
// Returns the number of bytes of a character in UTF-8.
std::uint32_t utf8_size(std::uint32_t code);
// Returns the offset of the first byte that is not valid UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text);
// Returns the text with U+FFFD in the place of each longest prefix of a character that is not
// complete, and of each other invalid byte (the rule of the Unicode standard, section 3.9).
std::string replace_broken_utf8(std::string_view bytes);
bool is_ascii(std::string_view text);

bool is_white_space(std::uint32_t code);
// Returns whether the category is Cc, Cf, Co or Cs.
bool is_other(std::uint32_t code);
// Returns whether a character is ASCII punctuation or a symbol of ASCII, or has a category P*.
bool is_punctuation(std::uint32_t code);
bool is_nonspacing_mark(std::uint32_t code);
bool is_mark(std::uint32_t code);
bool is_numeric(std::uint32_t code);
// Returns whether \w of a regular expression matches the character.
bool is_word(std::uint32_t code);
bool is_chinese(std::uint32_t code);

// A character of a changed text. `change` is 1 for a character that was inserted, 0 for a character
// in the place of one, and -n for a character in the place of n + 1 characters.
struct Change {
    std::uint32_t code;
    std::int32_t change;
};

enum class Form { nfc, nfd, nfkc, nfkd };

// Appends the characters of a text in a normalization form.
void normalize(std::string_view text, Form form, std::vector<Change>& out);
// Appends the characters of a text in lower case. Ignores the context of a character, which matters
// for a final sigma.
void lower_case(std::string_view text, std::vector<Change>& out);
// Returns the number of bytes of the grapheme cluster at the start of a text.
std::size_t grapheme_size(std::string_view text);

}  // namespace axle::data::tokenizers
