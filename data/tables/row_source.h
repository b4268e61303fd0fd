// Private to data/tables: the interface of the objects that store, read or compute rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tree/tree.h"
#include "data/tables/columns.h"
#include "kernels/error.h"

namespace axle::data {

// Rows with the same columns. Several threads may call the functions.
class RowSource {
  public:
    virtual ~RowSource() = default;
    virtual std::int64_t size() const = 0;
    virtual const std::vector<TableColumn>& columns() const = 0;
    // Returns the values of a row, in [0, size()), in the columns with the positions `wanted`.
    virtual std::vector<Tree> values(std::int64_t row,
                                     std::span<const std::size_t> wanted) const = 0;
    // Returns the place of a row for error messages, as Table::location() does.
    virtual std::string location(std::int64_t row) const { return str("row ", row); }
};

// Returns a map of the values of a row. `values` has one value for each column.
Tree row_of(const std::vector<TableColumn>& columns, std::vector<Tree> values);
// Returns the type of a value.
ColumnType type_of(const Tree& value);
// Changes `type` so that a column of this type can contain values of `other` too: null fits every
// type, and integers fit number. Returns false, and changes nothing, if the types do not fit.
bool widen_type(ColumnType& type, ColumnType other);
// Returns a text that identifies a value. Throws ValueError for a tensor.
std::string key_of(const Tree& value);
// Returns a value for a column of a type: converts integers for a column of numbers.
Tree converted(Tree value, ColumnType type);

}  // namespace axle::data
