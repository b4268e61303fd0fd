// Private to tools: tables of text.
#pragma once

#include <string>
#include <vector>

namespace axle::launcher {

using TableRow = std::vector<std::string>;

// Returns a table with frames. The first row contains the titles of the columns; all rows have the
// same number of cells.
std::string table(const std::string& title, const std::vector<TableRow>& rows);

}  // namespace axle::launcher
