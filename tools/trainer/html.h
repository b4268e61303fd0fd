// Escapes text for HTML.
#pragma once

#include <string>
#include <string_view>

namespace axle::trainer {

// Escapes text for element contents and for attributes in double quotes. Control characters except
// line breaks and tabs, and invalid UTF-8, become U+FFFD.
std::string escape_html(std::string_view text);

// Returns "data:TYPE;base64,...".
std::string data_uri(std::string_view type, std::string_view bytes);

}  // namespace axle::trainer
