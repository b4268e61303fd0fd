// Text utilities: closest match, UTF-8, number formatting.
#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace axle {

// Returns the candidate with the smallest edit distance to `name`, or "" if more than a third of
// the letters differ.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// Returns the length of the UTF-8 sequence of a printable non-ASCII character at the start of text
// (not empty), or 0. Overlong forms, surrogates and C1 controls are rejected.
std::size_t utf8_length(std::string_view text);

// Returns text with each invalid UTF-8 byte replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// Formats like printf("%.*f") and its variants in the C locale, regardless of the program's locale.
std::string format_number(double value, std::chars_format format, int precision);

}  // namespace axle
