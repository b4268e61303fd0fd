// Private to tools: tables with columns of text.
#pragma once

#include <string>
#include <vector>

#include "core/tree/tree.h"
#include "data/tables/table.h"

namespace axle::trainer {

// Opens a .csv, .tsv, .jsonl or .json file. The columns `texts` of a .csv or .tsv file are text,
// even if all values are numbers. Throws UsageError for another extension, and the errors of Table.
data::Table open_rows(const std::string& path, const std::vector<std::string>& texts);

// Returns the text in a column of a row, or "" if the value is missing. Throws ValueError for other
// values.
std::string text_of(const Tree& row, const std::string& column);

}  // namespace axle::trainer
