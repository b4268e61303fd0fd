// Text of people and for people: the name that was meant, UTF-8, numbers.
#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace axle::inline v0 {

// The candidate with the smallest edit distance to `name`, or "" if none is near enough to be what
// was meant (more than a third of the letters differ).
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// Bytes of the UTF-8 sequence of a printable character beyond ASCII that text (not empty) starts
// with, or 0. Overlong forms, surrogates and the C1 controls don't count.
std::size_t utf8_length(std::string_view text);

// The same text with U+FFFD in place of each byte that isn't UTF-8.
std::string repaired_utf8(std::string_view text);

// As printf("%.*f") and its like write it under the C locale, whatever locale the program has set.
std::string format_number(double value, std::chars_format format, int precision);

}  // namespace axle::inline v0
