#include "core/text/text.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include <sys/random.h>

#include "kernels/error.h"

namespace axle {
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

}  // namespace

std::size_t utf8_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned first = byte(0);
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
    std::uint32_t code = first & (0x7fu >> length);
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0u) != 0x80u) return 0;
        code = code << 6 | (byte(i) & 0x3fu);
    }
    static constexpr std::uint32_t kMinCode[] = {0, 0, 0xa0, 0x800, 0x10000};
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    return code < kMinCode[length] || code > 0x10ffff || surrogate ? 0 : length;
}

std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return result;
}

std::string upper(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    return result;
}

std::string format_number(double value, std::chars_format format, int precision) {
    std::string text(352 + static_cast<std::size_t>(precision), '\0');  // DBL_MAX has 309 digits
    const auto end =
        std::to_chars(text.data(), text.data() + text.size(), value, format, precision);
    text.resize(static_cast<std::size_t>(end.ptr - text.data()));
    return text;
}

std::string replace_invalid_utf8(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const bool ascii = static_cast<unsigned char>(text[0]) < 0x80;
        const std::size_t length = ascii ? 1 : utf8_length(text);
        out += length == 0 ? "\xEF\xBF\xBD" : text.substr(0, length);
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return out;
}

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
    std::string best;
    std::size_t min_distance = std::max<std::size_t>(2, (name.size() + 2) / 3) + 1;
    for (const std::string& candidate : candidates) {
        // The difference of the lengths is a lower bound of the distance, so the distance to a much
        // longer or shorter name is not computed.
        const std::size_t longer = std::max(name.size(), candidate.size());
        if (longer - std::min(name.size(), candidate.size()) >= min_distance) continue;
        const std::size_t distance = edit_distance(name, candidate);
        if (distance < min_distance) min_distance = distance, best = candidate;
    }
    return best;
}

std::string random_hex(std::size_t digits) {
    static constexpr char kHex[] = "0123456789abcdef";
    std::string text(digits, '\0');
    for (std::size_t done = 0; done < digits;) {
        const ssize_t size = ::getrandom(text.data() + done, digits - done, 0);
        if (size < 0 && errno != EINTR)
            throw Error(str("random_hex: cannot get random bytes from the operating system: ",
                            std::generic_category().message(errno)));
        if (size > 0) done += static_cast<std::size_t>(size);
    }
    for (char& c : text) c = kHex[static_cast<unsigned char>(c) & 15];
    return text;
}

}  // namespace axle
