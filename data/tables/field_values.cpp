#include "data/tables/field_values.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

namespace axle::data {
namespace {

std::string_view trimmed(std::string_view field) {
    while (!field.empty() && (field.front() == ' ' || field.front() == '\t'))
        field.remove_prefix(1);
    while (!field.empty() && (field.back() == ' ' || field.back() == '\t')) field.remove_suffix(1);
    return field;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Returns a number without its '+', which std::from_chars does not accept.
std::string_view without_plus(std::string_view field) {
    if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
    return field;
}

// Parses all characters of a field. Returns std::errc() if this succeeds.
template <class T>
std::errc parse(std::string_view field, T& value) {
    const char* end = field.data() + field.size();
    const auto result = std::from_chars(field.data(), end, value);
    return result.ec == std::errc() && result.ptr != end ? std::errc::invalid_argument : result.ec;
}

std::optional<double> number_in(std::string_view field) {
    field = without_plus(trimmed(field));
    double value = 0;
    const std::errc error = parse(field, value);
    if (error == std::errc()) return value;
    if (error != std::errc::result_out_of_range) return std::nullopt;
    // Numbers beyond the range of double become infinite or 0, if long double contains them.
    long double wide = 0;
    if (parse(field, wide) != std::errc()) return std::nullopt;
    return static_cast<double>(wide);
}

std::optional<bool> boolean_in(std::string_view field) {
    if (field == "True" || field == "TRUE" || field == "true") return true;
    if (field == "False" || field == "FALSE" || field == "false") return false;
    return std::nullopt;
}

}  // namespace

std::uint8_t FieldKinds::kind_of(std::string_view field) {
    field = trimmed(field);
    if (field.empty()) return kText;
    const char c = field[0];
    if (c == 'T' || c == 't' || c == 'F' || c == 'f') return boolean_in(field) ? kBoolean : kText;
    const bool starts_number = is_digit(c) || c == '-' || c == '+' || c == '.' || c == 'i' ||
                               c == 'I' || c == 'n' || c == 'N';
    if (!starts_number) return kText;
    std::int64_t integer = 0;
    const std::errc error = parse(without_plus(field), integer);
    if (error == std::errc()) return kInteger;
    // As in pandas, integers beyond int64 are text.
    if (error == std::errc::result_out_of_range &&
        std::all_of(field.begin() + 1, field.end(), is_digit))
        return kText;
    return number_in(field) ? kNumber : kText;
}

void FieldKinds::add(std::string_view field) {
    if ((found_ & kText) == 0) found_ |= kind_of(field);
}

ColumnType FieldKinds::type() const {
    if (found_ == 0) return ColumnType::null;
    if (found_ == kBoolean) return ColumnType::boolean;
    if (found_ == kInteger) return ColumnType::integer;
    const bool is_number = (found_ & kNumber) != 0 && (found_ & (kText | kBoolean)) == 0;
    return is_number ? ColumnType::number : ColumnType::text;
}

std::optional<Tree> value_of(std::string_view field, ColumnType type) {
    switch (type) {
        case ColumnType::text:
            return Tree(field);
        case ColumnType::integer: {
            std::int64_t value = 0;
            if (parse(without_plus(trimmed(field)), value) != std::errc()) return std::nullopt;
            return Tree(value);
        }
        case ColumnType::number:
            if (const auto value = number_in(field)) return Tree(*value);
            return std::nullopt;
        case ColumnType::boolean:
            if (const auto value = boolean_in(trimmed(field))) return Tree(*value);
            return std::nullopt;
        default:
            return std::nullopt;
    }
}

MissingValues::MissingValues(std::vector<std::string> values) : values_(std::move(values)) {
    for (const std::string& value : values_) {
        longest_ = std::max(longest_, value.size());
        if (value.empty())
            has_empty_ = true;
        else
            starts_value_[static_cast<unsigned char>(value[0])] = true;
    }
}

bool MissingValues::contains(std::string_view field) const {
    if (field.empty()) return has_empty_;
    if (field.size() > longest_ || !starts_value_[static_cast<unsigned char>(field[0])])
        return false;
    return std::ranges::find(values_, field) != values_.end();
}

}  // namespace axle::data
