#include "core/text/size_text.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include "core/files/file.h"
#include "core/text/text.h"
#include "kernels/error.h"

namespace axle {
namespace {

struct Unit {
    std::string_view name;  // the unit's name in upper case
    double bytes;
    bool has_bits;  // if true, a lower-case b means bits
};
constexpr Unit kAccelerateUnits[] = {{"GIB", 1 << 30, false}, {"MIB", 1 << 20, false},
                                     {"KIB", 1 << 10, false}, {"GB", 1e9, true},
                                     {"MB", 1e6, true},       {"KB", 1e3, true}};
constexpr Unit kHubUnits[] = {
    {"TB", 1e12, false}, {"GB", 1e9, false}, {"MB", 1e6, false}, {"KB", 1e3, false}};

std::string_view trimmed(std::string_view text) {
    static constexpr std::string_view kSpaces = " \t\n\r\f\v";
    const std::size_t begin = text.find_first_not_of(kSpaces);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

char upper(char c) { return 'a' <= c && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool ends_with_unit(std::string_view text, std::string_view unit) {
    if (text.size() < unit.size()) return false;
    const std::string_view end = text.substr(text.size() - unit.size());
    for (std::size_t i = 0; i < unit.size(); ++i)
        if (upper(end[i]) != unit[i]) return false;
    return true;
}

std::optional<double> number_in(std::string_view text) {
    text = trimmed(text);
    if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
    return value;
}

std::optional<std::int64_t> bytes_in(std::string_view text, std::span<const Unit> units) {
    for (const Unit& unit : units) {
        if (!ends_with_unit(text, unit.name)) continue;
        const auto value = number_in(text.substr(0, text.size() - unit.name.size()));
        if (!value || !(*value >= 0) || *value * unit.bytes >= 0x1p63) return std::nullopt;
        const auto whole = static_cast<std::int64_t>(*value * unit.bytes);
        return unit.has_bits && text.back() == 'b' ? whole / 8 : whole;
    }
    return std::nullopt;
}

// Formats a number with two decimals, or with one if the second is 0. Ties of the exact value are
// rounded to even, as in Python's round().
std::string two_digits(double value) {
    std::string text = format_number(value, std::chars_format::fixed, 2);
    return text.ends_with('0') ? text.substr(0, text.size() - 1) : text;
}

}  // namespace

std::string convert_bytes(double bytes) {
    for (const char* unit : {"bytes", "KB", "MB", "GB", "TB"}) {
        if (bytes < 1024) return two_digits(bytes) + " " + unit;
        bytes /= 1024;
    }
    return two_digits(bytes) + " PB";
}
std::string convert_bytes(std::int64_t bytes) {
    return bytes < 1024 ? str(bytes, " bytes") : convert_bytes(static_cast<double>(bytes));
}

std::int64_t convert_file_size_to_int(std::string_view size) {
    if (const auto bytes = bytes_in(size, kAccelerateUnits)) return *bytes;
    throw ValueError(str("convert_file_size_to_int: not a size: ", in_quotes(size),
                         "; use an integer for bytes, or a number with a unit, as in '5.0GB'"));
}
std::int64_t convert_file_size_to_int(std::int64_t size) {
    if (size < 0)
        throw ValueError(str("convert_file_size_to_int: the size cannot be negative: ", size));
    return size;
}

std::int64_t parse_size_to_int(std::string_view size) {
    if (const auto bytes = bytes_in(trimmed(size), kHubUnits)) return *bytes;
    throw ValueError(str("parse_size_to_int: not a size: ", in_quotes(size),
                         "; use a number with TB, GB, MB or KB, as in '5GB'"));
}

}  // namespace axle
