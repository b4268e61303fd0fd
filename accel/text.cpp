#include "accel/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace axle::inline v0::accel {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

template <class... T>
std::string formatted(const char* format, T... values) {
    std::array<char, 64> text = {};
    std::snprintf(text.data(), text.size(), format, values...);
    return text.data();
}

}  // namespace

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
    std::string best;
    std::size_t least = std::max<std::size_t>(2, (name.size() + 2) / 3) + 1;
    for (const std::string& candidate : candidates) {
        const std::size_t distance = edit_distance(name, candidate);
        if (distance < least) least = distance, best = candidate;
    }
    return best;
}

std::string human_bytes(std::int64_t bytes) {
    static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = static_cast<double>(bytes);
    int unit = 0;
    while (value >= 999.5 && unit < 6) value /= 1000, ++unit;
    return formatted(unit == 0 || value >= 99.95 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
}

std::string human_duration(double seconds) {
    if (!(seconds >= 0) || seconds > 1e9) return "?";
    const auto whole = static_cast<long long>(std::llround(seconds));
    const long long hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
    return hours > 0 ? formatted("%lld:%02lld:%02lld", hours, minutes, rest)
                     : formatted("%lld:%02lld", minutes, rest);
}

}  // namespace axle::inline v0::accel
