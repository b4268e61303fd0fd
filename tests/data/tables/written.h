// Helpers for tests of tables.
#pragma once

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/tree/tree.h"
#include "data/tables/table.h"
#include "tests/temporary_folder.h"

namespace axle::tests {

// Writes a file and returns its path.
inline std::string written(const TemporaryFolder& folder, std::string_view text,
                           const std::string& name = "rows") {
    std::ofstream(folder / name, std::ios::binary) << text;
    return folder / name;
}

// Returns the rows of a table, each as JSON.
inline std::vector<std::string> rows_of(const data::Table& table) {
    std::vector<std::string> rows;
    for (std::int64_t i = 0; i < table.size(); ++i) rows.push_back(to_json(table.get(i), -1));
    return rows;
}

}  // namespace axle::tests
