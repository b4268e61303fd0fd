// Fuzzes CSV files: tables, streams, and rows that are written and read back.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/tables/table.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {
namespace {

// Returns CSV text with all fields of a table of text in quotes.
std::string encoded(const data::Table& table) {
    std::string text;
    const auto append = [&](const std::string& value) {
        if (!text.empty() && text.back() != '\n') text += ',';
        text += '"';
        for (const char c : value) text += c == '"' ? "\"\"" : std::string(1, c);
        text += '"';
    };
    for (const std::string& name : table.column_names()) append(name);
    text += '\n';
    for (std::int64_t i = 0; i < table.size(); ++i) {
        const Tree row = table.get(i);
        for (const auto& [name, value] : row.entries()) append(value.string());
        text += '\n';
    }
    return text;
}

// Requires that a stream has the rows of a table.
void require_streamed(const std::string& path, const data::Table& table) {
    const data::ShardedDataset rows = data::stream_csv({path}, {.infer_rows = INT64_MAX});
    const auto stream = rows.stream(0);
    for (std::int64_t i = 0; i < table.size(); ++i) {
        const std::optional<Tree> row = stream->next();
        require(row && to_json(*row) == to_json(table.get(i)), "a stream has the rows of a table");
    }
    require(!stream->next(), "a stream has no other rows");
}

}  // namespace

void fuzz(Bytes input) {
    const std::string path = memory_file(kHostileName, input);
    std::vector<data::Table> tables;
    if (!accepts([&] { tables.push_back(data::Table::from_csv(path)); })) return;
    require_streamed(path, tables[0]);

    data::CsvOptions options{.missing_values = {}};
    for (const data::TableColumn& column : tables[0].schema())
        options.types.emplace_back(column.name, data::ColumnType::text);
    const data::Table text = data::Table::from_csv(path, options);
    require(text.size() == tables[0].size(), "types do not change the number of rows");
    const std::string written = encoded(text);
    const data::Table again =
        data::Table::from_csv(memory_file("written", bytes_of(written)), options);
    require(again.size() == text.size(), "written rows are read back");
    for (std::int64_t i = 0; i < text.size(); ++i)
        require(to_json(again.get(i)) == to_json(text.get(i)), "written values are read back");
}

}  // namespace axle::tests
