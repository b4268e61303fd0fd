// TableColumn: the name and type of a column of a Table.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace axle::data {

// The type of the values of a column. Every value can also be missing, which is a null Tree. A
// column of type `null` has only missing values. The values of a `nested` column are lists and
// maps.
enum class ColumnType : std::uint8_t { null, text, integer, number, boolean, tensor, nested };

// Writes the name of a type, such as "integer".
std::ostream& operator<<(std::ostream& out, ColumnType type);

struct TableColumn {
    std::string name;
    ColumnType type = ColumnType::null;
    // The names of classes. If not empty, the values are integers: positions in this list.
    std::vector<std::string> class_names = {};

    friend bool operator==(const TableColumn&, const TableColumn&) = default;
};

}  // namespace axle::data
