// Text utilities: search for the closest match, UTF-8, letter case, number formatting, random text.
#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace axle {

// Returns the candidate with the smallest edit distance to `name`. Returns "" if the distance is
// above 2 and above a third of the length of `name`, rounded up.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// Returns the length in bytes of the printable non-ASCII UTF-8 character at the start of text, or 0
// if there is none. text must not be empty. Overlong forms, surrogates and C1 controls are
// rejected.
std::size_t utf8_length(std::string_view text);

// Returns the text with each byte of invalid UTF-8 or of a C1 control replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// Return the text with all ASCII letters in lower or upper case.
std::string lower(std::string_view text);
std::string upper(std::string_view text);

// Formats a number as printf("%.*f") and its variants do in the C locale. The program's locale has
// no influence.
std::string format_number(double value, std::chars_format format, int precision);

// Returns `digits` random hexadecimal digits from the operating system, suitable for secrets.
// Throws Error if the operating system does not provide random numbers.
std::string random_hex(std::size_t digits);

}  // namespace axle
