// Private to accel: text inside of HTML.
#pragma once

#include <string>
#include <string_view>

namespace axle::accel {

// Fit for an element's text and for an attribute in double quotes; control characters other than
// line breaks and tabs, and bytes that are not UTF-8, become U+FFFD.
std::string escape_html(std::string_view text);

// data:TYPE;base64,...
std::string data_uri(std::string_view type, std::string_view bytes);

}  // namespace axle::accel
