// Fuzzes files of JSON lines: tables, streams, and rows that are written and read back.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/tables/table.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {
namespace {

// A row has a value for each column of the file, so many rows with different keys are large.
constexpr std::int64_t kMaxRows = 100;

}  // namespace

void fuzz(Bytes input) {
    const std::string path = memory_file(kHostileName, input);
    std::vector<data::Table> tables;
    if (!accepts([&] { tables.push_back(data::Table::from_json(path)); })) return;
    const data::Table& table = tables[0];
    const std::int64_t n = std::min(table.size(), kMaxRows);
    const data::ShardedDataset rows = data::stream_json({path}, {.infer_rows = INT64_MAX});
    const auto stream = rows.stream(0);
    std::string written;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::string row = to_json(table.get(i), -1);
        const std::optional<Tree> streamed = stream->next();
        require(streamed && to_json(*streamed, -1) == row, "a stream has the rows of a table");
        written += row + "\n";
    }
    if (table.size() <= kMaxRows) require(!stream->next(), "a stream has no other rows");
    if (n == 0) return;
    const data::Table again = data::Table::from_json(memory_file("written", bytes_of(written)));
    require(again.size() == n, "written rows are read back");
    for (std::int64_t i = 0; i < n; ++i)
        require(to_json(again.get(i)) == to_json(table.get(i)), "written values are read back");
    accepts([&] { data::Table::from_json(path, {.strict = true}); });
}

}  // namespace axle::tests
