#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "core/files/file.h"
#include "data/webdataset/web_dataset.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

constexpr std::size_t kMaxNames = 1'000'000;

void check_count(const std::string& pattern, std::size_t first, std::size_t second) {
    if (second != 0 && first > kMaxNames / second)
        throw ValueError(str("expand_braces: the pattern ", in_quotes(pattern), " has more than ",
                             kMaxNames, " names"));
}

std::optional<std::int64_t> integer_of(std::string_view text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool valid = error == std::errc() && end == text.data() + text.size() && value >= 0;
    return valid ? std::optional(value) : std::nullopt;
}

// Returns the numbers from `first` to `last`, both included, in ascending or descending order.
// Numbers have the width of the longer text if one of them begins with a zero.
std::vector<std::string> numbers(const std::string& pattern, std::string_view first_text,
                                 std::string_view last_text, std::int64_t first,
                                 std::int64_t last) {
    const auto [low, high] = std::minmax(first, last);
    if (high - low >= static_cast<std::int64_t>(kMaxNames)) check_count(pattern, kMaxNames + 1, 1);
    const auto has_zeros = [](std::string_view text) { return text.size() > 1 && text[0] == '0'; };
    const std::size_t width = has_zeros(first_text) || has_zeros(last_text)
                                  ? std::max(first_text.size(), last_text.size())
                                  : 0;
    std::vector<std::string> names;
    for (std::int64_t i = low; i <= high; ++i) {
        const std::string digits = std::to_string(i);
        names.push_back(std::string(width - std::min(width, digits.size()), '0') + digits);
    }
    if (first > last) std::ranges::reverse(names);
    return names;
}

// Returns the alternatives of the text between two braces.
std::vector<std::string> alternatives(const std::string& pattern, std::string_view inside) {
    if (inside.find(',') != std::string_view::npos) {
        std::vector<std::string> names;
        for (std::size_t at = 0; at <= inside.size();) {
            const std::size_t end = std::min(inside.find(',', at), inside.size());
            names.emplace_back(inside.substr(at, end - at));
            at = end + 1;
        }
        return names;
    }
    if (const std::size_t dots = inside.find(".."); dots != std::string_view::npos) {
        const std::string_view first_text = inside.substr(0, dots);
        const std::string_view last_text = inside.substr(dots + 2);
        const auto first = integer_of(first_text), last = integer_of(last_text);
        if (!first || !last)
            throw ValueError(
                str("expand_braces: a range must have two non-negative integers, such "
                    "as {000..099}: ",
                    in_quotes(pattern)));
        return numbers(pattern, first_text, last_text, *first, *last);
    }
    return {"{" + std::string(inside) + "}"};
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& pattern) {
    std::vector<std::string> names = {""};
    const auto append = [&](const std::vector<std::string>& ends) {
        check_count(pattern, names.size(), ends.size());
        std::vector<std::string> longer;
        longer.reserve(names.size() * ends.size());
        for (const std::string& name : names)
            for (const std::string& end : ends) longer.push_back(name + end);
        names = std::move(longer);
    };
    for (std::size_t at = 0; at < pattern.size();) {
        const std::size_t open = std::min(pattern.find('{', at), pattern.size());
        append({pattern.substr(at, open - at)});
        if (open == pattern.size()) break;
        const std::size_t close = pattern.find('}', open);
        if (close == std::string::npos)
            throw ValueError(str("expand_braces: a brace is not closed: ", in_quotes(pattern)));
        if (pattern.find('{', open + 1) < close)
            throw ValueError(
                str("expand_braces: nested braces are not supported: ", in_quotes(pattern)));
        append(alternatives(pattern, std::string_view(pattern).substr(open + 1, close - open - 1)));
        at = close + 1;
    }
    return names;
}

}  // namespace axle::data
