#include "data/tables/sources.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/files/file.h"
#include "core/ops.h"
#include "data/tables/record_file.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

using Values = std::vector<Tree>;
using Wanted = std::span<const std::size_t>;

// A source whose columns are known when it is created.
class SourceWithColumns : public RowSource {
  public:
    const std::vector<TableColumn>& columns() const override { return columns_; }

  protected:
    // Returns the values of a row in the columns `wanted`.
    static Values wanted_values(Tree row, Wanted wanted) {
        Values values;
        values.reserve(wanted.size());
        for (const std::size_t column : wanted)
            values.push_back(std::move(row.entries()[column].value));
        return values;
    }

    std::vector<TableColumn> columns_;
};

class MemoryRows : public SourceWithColumns {
  public:
    MemoryRows(const char* who, const std::vector<Tree>& rows) : size_(std::ssize(rows)) {
        std::unordered_map<std::string, std::size_t> positions;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (!rows[i].is_map())
                throw ValueError(
                    str(who, ": row ", i, ": expected a map, found ", type_of(rows[i])));
            for (const auto& [key, value] : rows[i].entries()) {
                const auto [found, is_new] = positions.emplace(key, columns_.size());
                if (is_new) columns_.push_back({key});
                ColumnType& type = columns_[found->second].type;
                if (!widen_type(type, type_of(value)))
                    throw ValueError(str(who, ": row ", i, ": column ", in_quotes(key),
                                         ": expected ", type, ", found ", type_of(value)));
            }
        }
        values_.resize(rows.size() * columns_.size());
        for (std::size_t i = 0; i < rows.size(); ++i)
            for (const auto& [key, value] : rows[i].entries()) {
                const std::size_t column = positions[key];
                values_[i * columns_.size() + column] = converted(value, columns_[column].type);
            }
    }
    std::int64_t size() const override { return size_; }
    Values values(std::int64_t row, Wanted wanted) const override {
        Values values;
        values.reserve(wanted.size());
        for (const std::size_t column : wanted)
            values.push_back(values_[static_cast<std::size_t>(row) * columns_.size() + column]);
        return values;
    }

  private:
    std::int64_t size_;
    Values values_;  // the values of all rows, one row after another
};

class ConcatenatedRows : public SourceWithColumns {
  public:
    explicit ConcatenatedRows(std::vector<Table> tables) : tables_(std::move(tables)) {
        columns_ = tables_[0].schema();
        for (const Table& table : tables_) {
            for (std::size_t i = 0; i < columns_.size(); ++i)
                if (columns_[i].type == ColumnType::null) columns_[i] = table.schema()[i];
            ends_.push_back(size() + table.size());
        }
    }
    std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
    Values values(std::int64_t row, Wanted wanted) const override {
        const std::size_t i = table_of(row);
        return wanted_values(tables_[i].get(row_in(i, row)), wanted);
    }
    std::string location(std::int64_t row) const override {
        const std::size_t i = table_of(row);
        return tables_[i].location(row_in(i, row));
    }

  private:
    // Returns the position of the table that has a row, and the position of the row in it.
    std::size_t table_of(std::int64_t row) const {
        return static_cast<std::size_t>(std::ranges::upper_bound(ends_, row) - ends_.begin());
    }
    std::int64_t row_in(std::size_t table, std::int64_t row) const {
        return table == 0 ? row : row - ends_[table - 1];
    }

    std::vector<Table> tables_;
    std::vector<std::int64_t> ends_;  // for each table, the number of rows up to its last row
};

class ReplacedColumn : public SourceWithColumns {
  public:
    ReplacedColumn(const Table& table, std::size_t position, TableColumn column,
                   std::function<Tree(Tree)> function)
        : table_(table), position_(position), function_(std::move(function)) {
        columns_ = table.schema();
        columns_[position] = std::move(column);
    }
    std::int64_t size() const override { return table_.size(); }
    Values values(std::int64_t row, Wanted wanted) const override {
        Values values = wanted_values(table_.get(row), wanted);
        for (std::size_t i = 0; i < wanted.size(); ++i)
            if (wanted[i] == position_) values[i] = function_(std::move(values[i]));
        return values;
    }
    std::string location(std::int64_t row) const override { return table_.location(row); }

  private:
    Table table_;
    std::size_t position_;
    std::function<Tree(Tree)> function_;
};

class MappedRows : public SourceWithColumns {
  public:
    MappedRows(const Table& table, std::function<Tree(Tree)> function,
               const std::vector<std::string>& removed)
        : table_(table), function_(std::move(function)), removed_(removed.begin(), removed.end()) {
        columns_ = table.remove_columns(removed).schema();
        if (table.size() > 0) {
            const Tree row = updated(0);
            std::vector<TableColumn> columns;
            for (const auto& [key, value] : row.entries()) {
                const auto old = std::ranges::find(columns_, key, &TableColumn::name);
                const ColumnType type = type_of(value);
                ColumnType widened = old == columns_.end() ? type : old->type;
                // A column that the function does not replace by values of another type keeps its
                // type, also if the first value is missing.
                if (old != columns_.end() && widen_type(widened, type) && widened == old->type)
                    columns.push_back(*old);
                else
                    columns.push_back({key, type});
            }
            columns_ = std::move(columns);
        }
    }
    std::int64_t size() const override { return table_.size(); }
    Values values(std::int64_t row, Wanted wanted) const override {
        Tree changed = updated(row);
        const bool same = std::ranges::equal(changed.entries(), columns_, {}, &Tree::Entry::key,
                                             &TableColumn::name);
        if (same) return wanted_values(std::move(changed), wanted);
        if (changed.size() != columns_.size())
            throw ValueError(str("map: row ", row, " has ", changed.size(),
                                 " columns, but the first row has ", columns_.size()));
        Values values;
        for (const std::size_t column : wanted) {
            const Tree* value = changed.find(columns_[column].name);
            if (value == nullptr)
                throw ValueError(str("map: row ", row, " does not have the column ",
                                     in_quotes(columns_[column].name), " of the first row"));
            values.push_back(*value);
        }
        return values;
    }
    std::string location(std::int64_t row) const override { return table_.location(row); }

  private:
    Tree updated(std::int64_t index) const {
        Tree row = table_.get(index);
        Tree changes = function_(row);
        std::erase_if(row.entries(),
                      [&](const Tree::Entry& entry) { return removed_.contains(entry.key); });
        update_row(row, std::move(changes));
        return row;
    }

    Table table_;
    std::function<Tree(Tree)> function_;
    std::unordered_set<std::string> removed_;
};

class DocumentRows : public SourceWithColumns {
  public:
    explicit DocumentRows(std::vector<std::string> paths) : paths_(std::move(paths)) {
        columns_ = {{"text", ColumnType::text}};
    }
    std::int64_t size() const override { return std::ssize(paths_); }
    Values values(std::int64_t row, Wanted wanted) const override {
        const std::string& path = paths_[static_cast<std::size_t>(row)];
        if (InputFile(path).size() == 0) return Values(wanted.size(), Tree(""));
        const std::unique_ptr<RecordFile> file = open_text(path, SampleBy::document);
        // A file with only a byte order mark has no record.
        Record record;
        record.end = file->first();
        if (!file->next(record)) return Values(wanted.size(), Tree(""));
        return file->values(record, wanted);
    }
    std::string location(std::int64_t row) const override {
        return printable(paths_[static_cast<std::size_t>(row)]);
    }

  private:
    std::vector<std::string> paths_;
};

// Adds the elements of nested lists to `leaves`, and the lengths of the lists to `shape`. Returns
// false if lists of the same level have different lengths or elements are not numbers or booleans.
bool flatten(const Tree& value, int depth, Shape& shape, Values& leaves) {
    if (!value.is_list()) {
        const bool is_leaf = value.is_number() || value.is_boolean();
        if (is_leaf) leaves.push_back(value);
        return is_leaf && depth == shape.size();
    }
    const auto n = static_cast<std::int64_t>(value.size());
    // The first list of a level determines the length.
    if (depth == shape.size()) {
        if (!leaves.empty() || depth == kMaxDims) return false;
        shape.push_back(n);
    }
    if (shape[depth] != n) return false;
    return std::ranges::all_of(value.elements(), [&](const Tree& element) {
        return flatten(element, depth + 1, shape, leaves);
    });
}

}  // namespace

std::ostream& operator<<(std::ostream& out, ColumnType type) {
    constexpr const char* kNames[] = {"null",    "text",   "integer", "number",
                                      "boolean", "tensor", "nested"};
    return out << kNames[static_cast<std::size_t>(type)];
}

ColumnType type_of(const Tree& value) {
    switch (value.kind()) {
        case Tree::Kind::null:
            return ColumnType::null;
        case Tree::Kind::tensor:
            return ColumnType::tensor;
        case Tree::Kind::integer:
            return ColumnType::integer;
        case Tree::Kind::number:
            return ColumnType::number;
        case Tree::Kind::flag:
            return ColumnType::boolean;
        case Tree::Kind::string:
            return ColumnType::text;
        default:
            return ColumnType::nested;
    }
}

bool widen_type(ColumnType& type, ColumnType other) {
    if (other == type || other == ColumnType::null) return true;
    const bool is_wider = type == ColumnType::integer && other == ColumnType::number;
    if (type == ColumnType::null || is_wider) {
        type = other;
        return true;
    }
    return type == ColumnType::number && other == ColumnType::integer;
}

std::string key_of(const Tree& value) {
    if (value.is_string()) return "\"" + value.string();
    return to_json(value, -1);
}

Tree converted(Tree value, ColumnType type) {
    if (type == ColumnType::number && value.is_integer()) return value.number();
    return value;
}

Tree row_of(const std::vector<TableColumn>& columns, std::vector<Tree> values) {
    Tree row = Tree::map();
    Tree::Map& entries = row.entries();
    entries.reserve(columns.size());
    for (std::size_t i = 0; i < columns.size(); ++i)
        entries.push_back({columns[i].name, std::move(values[i])});
    return row;
}

void update_row(Tree& row, Tree changes) {
    if (!changes.is_map())
        throw ValueError(
            str("map: the function must return a map: it returned ", printable(str(changes))));
    for (auto& [key, value] : changes.entries()) row.set(key, std::move(value));
}

Tree tensor_value(const Tree& value) {
    if (value.is_integer()) return full({}, value.integer(), {i64});
    if (value.is_boolean()) return full({}, value.boolean(), {boolean});
    if (value.is_number()) return full({}, value.number(), {f32});
    if (!value.is_list() || value.empty()) return value;
    Shape shape;
    Values leaves;
    if (!flatten(value, 0, shape, leaves) || leaves.empty()) return value;
    const auto all = [&](bool (Tree::*is)() const) {
        return std::ranges::all_of(leaves, [is](const Tree& leaf) { return (leaf.*is)(); });
    };
    if (all(&Tree::is_boolean)) {
        const auto elements = std::make_unique<bool[]>(leaves.size());
        for (std::size_t i = 0; i < leaves.size(); ++i) elements[i] = leaves[i].boolean();
        return tensor(std::span<const bool>(elements.get(), leaves.size()), shape);
    }
    if (!all(&Tree::is_number)) return value;
    if (all(&Tree::is_integer)) {
        std::vector<std::int64_t> elements;
        for (const Tree& leaf : leaves) elements.push_back(leaf.integer());
        return tensor(elements, shape);
    }
    std::vector<float> elements;
    for (const Tree& leaf : leaves) elements.push_back(static_cast<float>(leaf.number()));
    return tensor(elements, shape);
}

std::shared_ptr<const RowSource> rows_in_memory(const char* who, const std::vector<Tree>& rows) {
    return std::make_shared<MemoryRows>(who, rows);
}

std::shared_ptr<const RowSource> concatenated_rows(std::vector<Table> tables) {
    return std::make_shared<ConcatenatedRows>(std::move(tables));
}

std::shared_ptr<const RowSource> rows_with_column(const Table& table, std::size_t position,
                                                  TableColumn column,
                                                  std::function<Tree(Tree)> function) {
    return std::make_shared<ReplacedColumn>(table, position, std::move(column),
                                            std::move(function));
}

std::shared_ptr<const RowSource> mapped_rows(const Table& table, std::function<Tree(Tree)> function,
                                             const std::vector<std::string>& removed) {
    return std::make_shared<MappedRows>(table, std::move(function), removed);
}

std::shared_ptr<const RowSource> document_rows(std::vector<std::string> paths) {
    return std::make_shared<DocumentRows>(std::move(paths));
}

}  // namespace axle::data
