#include "accel/config/environment.h"

#include <algorithm>
#include <charconv>

#include "dist/environment/environment.h"
#include "kernels/error.h"

namespace axle::accel {

std::optional<std::string> text_variable(const char* name) {
    auto text = dist::process_variable(name);
    if (text && text->empty()) text.reset();
    return text;
}

std::optional<bool> parse_flag(std::string_view text) {
    const std::string word = lower(text);
    for (const char* yes : {"1", "true", "t", "yes", "y", "on"})
        if (word == yes) return true;
    for (const char* no : {"0", "false", "f", "no", "n", "off"})
        if (word == no) return false;
    return std::nullopt;
}

std::optional<bool> flag_variable(const char* name) {
    const auto text = text_variable(name);
    if (!text) return std::nullopt;
    const auto flag = parse_flag(*text);
    if (!flag)
        throw ValueError(str(name,
                             ": must be 1, true, t, yes, y or on, or 0, false, f, no, n or off: '",
                             *text, "'"));
    return flag;
}

std::optional<int> number_variable(const char* name) {
    const auto text = text_variable(name);
    if (!text) return std::nullopt;
    int number = 0;
    const auto [stop, error] = std::from_chars(text->data(), text->data() + text->size(), number);
    if (error != std::errc() || *stop != '\0')
        throw ValueError(str(name, ": must be a 32-bit integer: '", *text, "'"));
    return number;
}

}  // namespace axle::accel
