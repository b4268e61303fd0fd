// JSON lines as records.
#include <algorithm>
#include <ranges>
#include <unordered_map>
#include <utility>

#include "data/tables/json_row.h"
#include "data/tables/record_file.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

// The largest number of keys for which parsing a row reserves memory.
constexpr std::size_t kMaxReserved = 64;

class JsonLinesFile : public RecordFile {
  public:
    JsonLinesFile(const std::string& path, const JsonLinesOptions& options)
        : RecordFile(path), strict_(options.strict), is_given_(!options.columns.empty()) {
        for (const TableColumn& column : options.columns) add_given(column);
    }

    bool next(Record& record) const override;
    void observe(const Record& record) override;
    void finish() override {}
    std::vector<Tree> values(const Record& record,
                             std::span<const std::size_t> wanted) const override;
    void adopt(const std::vector<TableColumn>& columns) override {
        columns_.clear();
        positions_.clear();
        for (const TableColumn& column : columns) add(column);
    }

  private:
    void add_given(const TableColumn& column);
    void add(const TableColumn& column) {
        positions_.emplace(column.name, columns_.size());
        columns_.push_back(column);
    }
    Tree parse(const Record& record) const;
    [[noreturn]] void throw_type(const Record& record, std::size_t column, ColumnType found) const;
    // Returns the position of the column of a key, or columns().size() if there is none. `guess` is
    // the probable position.
    std::size_t position_of(const std::string& key, std::size_t guess) const {
        if (guess < columns_.size() && columns_[guess].name == key) return guess;
        const auto found = positions_.find(key);
        return found == positions_.end() ? columns_.size() : found->second;
    }

    bool strict_, is_given_;
    bool has_records_ = false;  // whether observe() was called
    std::unordered_map<std::string, std::size_t> positions_;
};

void JsonLinesFile::add_given(const TableColumn& column) {
    if (positions_.contains(column.name))
        throw ValueError(
            str("JsonLinesOptions: two columns have the name ", in_quotes(column.name)));
    if (!column.class_names.empty() || column.type == ColumnType::tensor)
        throw ValueError(str("JsonLinesOptions: column ", in_quotes(column.name),
                             " must not have class names or the type tensor"));
    add(column);
}

bool JsonLinesFile::next(Record& record) const {
    std::size_t end = 0;
    if (!next_line(record.begin, end, record.end)) return false;
    check_utf8(record.begin, end);
    return true;
}

Tree JsonLinesFile::parse(const Record& record) const {
    Tree row;
    try {
        row = parse_json_row(text().substr(record.begin, record.end - record.begin),
                             std::min(columns_.size(), kMaxReserved));
    } catch (const ValueError& error) {
        // The parser only sees this line, so the number of the line is always 1.
        constexpr std::string_view kLine = "at line 1, ", kPrefix = "from_json: ";
        std::string what = error.what();
        if (what.starts_with(kPrefix)) what.erase(0, kPrefix.size());
        if (const auto at = what.find(kLine); at != std::string::npos)
            what.replace(at, kLine.size(), "at ");
        throw_at(record.begin, what);
    }
    if (!row.is_map()) throw_at(record.begin, str("expected a JSON object, found ", type_of(row)));
    return row;
}

void JsonLinesFile::throw_type(const Record& record, std::size_t column, ColumnType found) const {
    throw_at(record.begin, str("column ", in_quotes(columns_[column].name), ": expected ",
                               columns_[column].type, ", found ", found));
}

void JsonLinesFile::observe(const Record& record) {
    if (is_given_) return;
    const Tree row = parse(record);
    std::size_t known = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
        const auto& [key, value] = row.entries()[i];
        const std::size_t column = position_of(key, i);
        const ColumnType type = type_of(value);
        if (column == columns_.size()) {
            if (strict_ && has_records_)
                throw_at(record.begin,
                         str("the first object does not have the key ", in_quotes(key)));
            add({key, type});
        } else {
            ++known;
            if (!widen_type(columns_[column].type, type)) throw_type(record, column, type);
        }
    }
    if (strict_ && has_records_ && known != columns_.size())
        throw_at(record.begin,
                 str("expected the ", columns_.size(), " keys of the first object, found ", known));
    has_records_ = true;
}

std::vector<Tree> JsonLinesFile::values(const Record& record,
                                        std::span<const std::size_t> wanted) const {
    Tree row = parse(record);
    std::vector<Tree> all(columns_.size());
    auto& entries = row.entries();
    std::size_t known = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        auto& [key, value] = entries[i];
        const std::size_t column = position_of(key, i);
        if (column == columns_.size()) {
            if (is_given_) continue;
            throw_at(record.begin, str("the key ", in_quotes(key),
                                       " is not one of the columns that were inferred"));
        }
        ++known;
        const ColumnType found = type_of(value);
        ColumnType type = columns_[column].type;
        if (!widen_type(type, found) || type != columns_[column].type)
            throw_type(record, column, found);
        all[column] = converted(std::move(value), type);
    }
    if (strict_ && known != columns_.size())
        throw_at(record.begin, str("expected ", columns_.size(), " keys, found ", known));
    if (std::ranges::equal(wanted, std::views::iota(std::size_t{0}, all.size()))) return all;
    std::vector<Tree> values;
    values.reserve(wanted.size());
    for (const std::size_t column : wanted) values.push_back(std::move(all[column]));
    return values;
}

}  // namespace

std::unique_ptr<RecordFile> open_json_lines(const std::string& path,
                                            const JsonLinesOptions& options) {
    return std::make_unique<JsonLinesFile>(path, options);
}

}  // namespace axle::data
