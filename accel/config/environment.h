// Private to accel: reads environment variables, and parses booleans. The functions that read a
// variable return nullopt if it is unset or empty.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/text/text.h"

namespace axle::accel {

std::optional<std::string> text_variable(const char* name);
// Parses a boolean: 1, true, t, yes, y and on are true; 0, false, f, no, n and off are false. Case
// is ignored. Returns nullopt for other text.
std::optional<bool> parse_flag(std::string_view text);
// Reads a boolean variable. Throws ValueError for text that parse_flag() does not accept.
std::optional<bool> flag_variable(const char* name);
// Reads an integer variable. Throws ValueError if the value is not a 32-bit integer.
std::optional<int> number_variable(const char* name);

}  // namespace axle::accel
