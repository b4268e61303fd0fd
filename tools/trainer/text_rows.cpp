#include "tools/trainer/text_rows.h"

#include <filesystem>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::trainer {

data::Table open_rows(const std::string& path, const std::vector<std::string>& texts) {
    const std::string extension = std::filesystem::path(path).extension().string();
    if (extension == ".jsonl" || extension == ".json") return data::Table::from_json(path);
    data::CsvOptions csv;
    for (const std::string& name : texts) csv.types.emplace_back(name, data::ColumnType::text);
    if (extension == ".tsv") csv.delimiter = '\t';
    if (extension == ".csv" || extension == ".tsv") return data::Table::from_csv(path, csv);
    throw UsageError(
        str("--data and --validation must end in .csv, .tsv, .jsonl or .json: ", printable(path)));
}

std::string text_of(const Tree& row, const std::string& column) {
    const Tree& value = row[column];
    if (!value.is_null() && !value.is_string())
        throw ValueError(
            str("the column ", in_quotes(column), " must contain text: ", printable(str(value))));
    return value.is_null() ? "" : value.string();
}

}  // namespace axle::trainer
