// Private to accel: variables of the environment. An empty one counts as none.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace axle::accel {

std::optional<std::string> text_variable(const char* name);
// Yes is 1, true, t, yes, y and on, no is 0, false, f, no, n and off, in any case: ValueError names
// the set.
std::optional<bool> flag_variable(const char* name);
// ValueError for what is no whole number.
std::optional<int> number_variable(const char* name);

std::string lower(std::string_view text);

}  // namespace axle::accel
