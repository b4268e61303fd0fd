// CSV files as records.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "data/tables/field_values.h"
#include "data/tables/record_file.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

class CsvFile : public RecordFile {
  public:
    CsvFile(const std::string& path, const CsvOptions& options)
        : RecordFile(path),
          parser_(options.delimiter, options.quote),
          missing_(options.missing_values) {
        read_header(options);
        apply_types(options);
    }

    bool next(Record& record) const override;
    void observe(const Record& record) override;
    void finish() override;
    std::vector<Tree> values(const Record& record,
                             std::span<const std::size_t> wanted) const override;
    void adopt(const std::vector<TableColumn>& columns) override;

  private:
    void read_header(const CsvOptions& options);
    void apply_types(const CsvOptions& options);
    bool split(Record& record) const;
    Tree value(const Record& record, std::size_t column, std::string& buffer) const;

    CsvParser parser_;
    MissingValues missing_;
    std::vector<FieldKinds> kinds_;
    std::vector<bool> is_given_;  // whether the type of a column is an option
};

// Splits the next record and checks that it is UTF-8.
bool CsvFile::split(Record& record) const {
    const auto fail = [this](std::size_t offset, const char* what) { throw_at(offset, what); };
    if (!parser_.next(text(), record.begin, record.end, record.fields, fail)) return false;
    check_utf8(record.begin, record.end);
    return true;
}

void CsvFile::read_header(const CsvOptions& options) {
    Record record;
    record.end = first();
    if (!split(record)) throw_error("the file has no rows");
    const std::size_t n = record.fields.size();
    if (!options.column_names.empty() && options.column_names.size() != n)
        throw_at(record.begin, str("column_names has ", options.column_names.size(),
                                   " names, but the first row has ", n, " fields"));
    std::unordered_set<std::string> names;
    columns_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
        std::string& name = columns_[i].name;
        std::string buffer;
        if (!options.column_names.empty())
            name = options.column_names[i];
        else if (!options.header)
            name = str(i);
        else
            name = parser_.unquoted(record.fields[i], buffer);
        if (name.empty()) name = str("Unnamed: ", i);
        if (!names.insert(name).second)
            throw_at(record.begin, str("two columns have the name ", in_quotes(name)));
    }
    if (options.header) first_ = record.end;
}

void CsvFile::apply_types(const CsvOptions& options) {
    kinds_.resize(columns_.size());
    is_given_.resize(columns_.size());
    std::unordered_map<std::string_view, std::size_t> positions;
    for (std::size_t i = 0; i < columns_.size(); ++i) positions.emplace(columns_[i].name, i);
    for (const auto& [name, type] : options.types) {
        const auto found = positions.find(name);
        if (found == positions.end())
            throw ValueError(str("CsvOptions: types has the column ", in_quotes(name),
                                 ", which the file does not have"));
        if (type != ColumnType::text && type != ColumnType::integer && type != ColumnType::number &&
            type != ColumnType::boolean)
            throw ValueError(str("CsvOptions: the type of ", in_quotes(name),
                                 " must be text, integer, number or boolean: it is ", type));
        is_given_[found->second] = true;
        columns_[found->second].type = type;
    }
}

bool CsvFile::next(Record& record) const {
    if (!split(record)) return false;
    if (record.fields.size() != columns_.size())
        throw_at(record.begin,
                 str("expected ", columns_.size(), " fields, found ", record.fields.size()));
    return true;
}

void CsvFile::observe(const Record& record) {
    std::string buffer;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        if (is_given_[i]) {
            static_cast<void>(value(record, i, buffer));  // throws if the type is wrong
            continue;
        }
        const std::string_view field = parser_.unquoted(record.fields[i], buffer);
        if (!missing_.contains(field)) kinds_[i].add(field);
    }
}

void CsvFile::finish() {
    for (std::size_t i = 0; i < columns_.size(); ++i)
        if (!is_given_[i]) columns_[i].type = kinds_[i].type();
}

void CsvFile::adopt(const std::vector<TableColumn>& columns) {
    if (!std::ranges::equal(columns, columns_, {}, &TableColumn::name, &TableColumn::name))
        throw_error("the columns differ from the columns of the first file");
    columns_ = columns;
}

Tree CsvFile::value(const Record& record, std::size_t column, std::string& buffer) const {
    const std::string_view field = parser_.unquoted(record.fields[column], buffer);
    if (missing_.contains(field)) return {};
    const ColumnType type = columns_[column].type;
    std::optional<Tree> value = value_of(field, type);
    if (!value)
        throw_at(record.begin, str("column ", in_quotes(columns_[column].name), ": expected ", type,
                                   ", found ", in_quotes(field)));
    return *std::move(value);
}

std::vector<Tree> CsvFile::values(const Record& record, std::span<const std::size_t> wanted) const {
    std::vector<Tree> values;
    values.reserve(wanted.size());
    std::string buffer;
    for (const std::size_t column : wanted) values.push_back(value(record, column, buffer));
    return values;
}

}  // namespace

std::unique_ptr<RecordFile> open_csv(const std::string& path, const CsvOptions& options) {
    return std::make_unique<CsvFile>(path, options);
}

}  // namespace axle::data
