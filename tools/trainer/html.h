// Converts text and files for HTML pages.
#pragma once

#include <string>
#include <string_view>

namespace axle::trainer {

// Escapes text for the contents of elements and for attributes in double quotes. Invalid UTF-8, and
// control characters other than line breaks and tabs, are replaced by U+FFFD.
std::string escape_html(std::string_view text);

// Returns bytes as a URI, "data:TYPE;base64," followed by the encoded bytes.
std::string data_uri(std::string_view type, std::string_view bytes);

}  // namespace axle::trainer
