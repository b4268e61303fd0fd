#include "accel/utils/text.h"

#include <cmath>

#include "core/text/text.h"

namespace axle::accel {

std::string human_bytes(std::int64_t bytes) {
    static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = static_cast<double>(bytes);
    int unit = 0;
    while (value >= 999.5 && unit < 6) value /= 1000, ++unit;
    const int precision = unit == 0 || value >= 99.95 ? 0 : 1;
    return format_number(value, std::chars_format::fixed, precision) + ' ' + kUnits[unit];
}

std::string human_duration(double seconds) {
    if (!(seconds >= 0) || seconds > 1e9) return "?";
    const long long whole = std::llround(seconds), hours = whole / 3600, minutes = whole / 60 % 60;
    const auto two = [](long long n) { return std::to_string(100 + n).substr(1); };
    const std::string rest = ':' + two(whole % 60);
    return hours > 0 ? std::to_string(hours) + ':' + two(minutes) + rest
                     : std::to_string(minutes) + rest;
}

}  // namespace axle::accel
