// Private to data/tables: sources of rows that are computed from tables or kept in memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/tables/row_source.h"
#include "data/tables/table.h"

namespace axle::data {

// Returns rows in memory. Throws ValueError if a row is not a map or the types of a column do not
// fit. Messages begin with `who`.
std::shared_ptr<const RowSource> rows_in_memory(const char* who, const std::vector<Tree>& rows);
// Returns the rows of tables with the same columns in the same order.
std::shared_ptr<const RowSource> concatenated_rows(std::vector<Table> tables);
// Returns the rows of a table, in which the column at `position` is replaced by `column` with the
// values function(value).
std::shared_ptr<const RowSource> rows_with_column(const Table& table, std::size_t position,
                                                  TableColumn column,
                                                  std::function<Tree(Tree value)> function);
// Returns the rows of a table with the entries of function(row), without some columns.
std::shared_ptr<const RowSource> mapped_rows(const Table& table,
                                             std::function<Tree(Tree row)> function,
                                             const std::vector<std::string>& removed);
// Returns rows that each hold the text of one file. A file is opened when its row is read.
std::shared_ptr<const RowSource> document_rows(std::vector<std::string> paths);

// Adds the entries of `changes` to a row. Throws ValueError unless `changes` is a map.
void update_row(Tree& row, Tree changes);
// Returns an integer, a number, a boolean or a list of them (possibly nested, with equal lengths)
// as a tensor, and any other value unchanged.
Tree tensor_value(const Tree& value);

}  // namespace axle::data
