// Private to data/tables: the values of text fields, with the rules of pandas.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tree/tree.h"
#include "data/tables/columns.h"

namespace axle::data {

// The kinds of fields that were found in a column, from which its type is inferred.
class FieldKinds {
  public:
    void add(std::string_view field);
    // Returns the kind that all fields have, `number` for integers and numbers, `text` for other
    // combinations, or `null` if there are no fields. An integer beyond int64 is text.
    ColumnType type() const;

  private:
    enum : std::uint8_t { kText = 1, kInteger = 2, kNumber = 4, kBoolean = 8 };
    static std::uint8_t kind_of(std::string_view field);
    std::uint8_t found_ = 0;
};

// Returns the value of a field in a column of a type, or nullopt if the field is not of this type.
// Spaces and tabs around integers, numbers and booleans are ignored.
std::optional<Tree> value_of(std::string_view field, ColumnType type);

// The fields that are missing values.
class MissingValues {
  public:
    explicit MissingValues(std::vector<std::string> values);
    bool contains(std::string_view field) const;

  private:
    std::vector<std::string> values_;
    bool has_empty_ = false;
    std::size_t longest_ = 0;
    std::array<bool, 256> starts_value_ = {};
};

}  // namespace axle::data
