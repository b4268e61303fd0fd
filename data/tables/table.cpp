#include "data/tables/table.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

#include "core/files/file.h"
#include "data/tables/record_file.h"
#include "data/tables/sources.h"
#include "kernels/error.h"

namespace axle::data {
Table::Table(std::shared_ptr<const RowSource> source)
    : source_(std::move(source)), columns_(source_->columns()), wanted_(columns_.size()) {
    std::iota(wanted_.begin(), wanted_.end(), std::size_t{0});
}

Table Table::from_csv(const std::string& path, const CsvOptions& options) {
    const std::int64_t infer_rows = checked_infer_rows("CsvOptions", options.infer_rows, INT64_MAX);
    return Table(index_rows(open_csv(path, options), infer_rows));
}

Table Table::from_json(const std::string& path, const JsonLinesOptions& options) {
    const std::int64_t infer_rows =
        checked_infer_rows("JsonLinesOptions", options.infer_rows, INT64_MAX);
    return Table(index_rows(open_json_lines(path, options), infer_rows));
}

Table Table::from_text(const std::string& path, const TextOptions& options) {
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(path, ignored);
    const auto paths = is_folder ? files_in(path) : std::vector<std::string>{path};
    if (options.sample_by == SampleBy::document) return Table(document_rows(paths));
    std::vector<Table> tables;
    tables.reserve(paths.size());
    for (const std::string& file : paths)
        tables.push_back(Table(index_rows(open_text(file, options.sample_by), 0)));
    return tables.size() == 1 ? tables[0] : concatenate(tables);
}

Table Table::from_list(const std::vector<Tree>& rows) {
    return Table(rows_in_memory("Table::from_list", rows));
}

Table Table::concatenate(const std::vector<Table>& tables) {
    if (tables.empty())
        throw ValueError("Table::concatenate: needs at least one table: the list is empty");
    std::vector<Table> ordered;
    std::vector<TableColumn> columns = tables[0].columns_;
    for (std::size_t i = 0; i < tables.size(); ++i) {
        const auto throw_different = [&](const std::string& what) {
            throw ValueError(str("Table::concatenate: table ", i, ": ", what));
        };
        if (tables[i].columns_.size() != columns.size())
            throw_different(str("expected the ", columns.size(), " columns of the first table, ",
                                "found ", tables[i].columns_.size()));
        std::vector<std::size_t> positions;
        for (TableColumn& column : columns) {
            if (std::ranges::none_of(tables[i].columns_, [&](const TableColumn& other) {
                    return other.name == column.name;
                }))
                throw_different(str("there is no column ", in_quotes(column.name)));
            const std::size_t position = tables[i].position_of(column.name);
            const TableColumn& other = tables[i].columns_[position];
            if (column.type == ColumnType::null) column = other;
            if (other.type != ColumnType::null && other != column)
                throw_different(str("column ", in_quotes(column.name), " has the type ", other.type,
                                    ", expected ", column.type,
                                    other.type == column.type ? " with the same class names" : ""));
            positions.push_back(position);
        }
        ordered.push_back(tables[i].with_columns(positions));
    }
    return Table(concatenated_rows(std::move(ordered)));
}

std::int64_t Table::size() const { return rows_ ? std::ssize(*rows_) : source_->size(); }

std::int64_t Table::source_row(std::int64_t index) const {
    if (index < 0 || index >= size())
        throw IndexError(str("Table: index ", index, " is out of range for ", size(), " rows"));
    return rows_ ? (*rows_)[static_cast<std::size_t>(index)] : index;
}

Tree Table::get(std::int64_t index) const {
    std::vector<Tree> values = source_->values(source_row(index), wanted_);
    if (has_tensors_)
        for (Tree& value : values) value = tensor_value(value);
    return row_of(columns_, std::move(values));
}

std::string Table::location(std::int64_t index) const {
    return source_->location(source_row(index));
}

std::shared_ptr<const Dataset> Table::share() const { return std::make_shared<Table>(*this); }

std::size_t Table::position_of(const std::string& name) const {
    const auto column = std::ranges::find(columns_, name, &TableColumn::name);
    if (column != columns_.end()) return static_cast<std::size_t>(column - columns_.begin());
    std::string names;
    for (const TableColumn& known : columns_) {
        if (!names.empty()) names += ", ";
        names += in_quotes(known.name);
    }
    throw IndexError(
        str("Table: no column ", in_quotes(name), ": the columns are ", printable(names, 500)));
}

std::vector<std::string> Table::column_names() const {
    std::vector<std::string> names;
    names.reserve(columns_.size());
    for (const TableColumn& column : columns_) names.push_back(column.name);
    return names;
}

const TableColumn& Table::column_schema(const std::string& name) const {
    return columns_[position_of(name)];
}

std::vector<Tree> Table::column(const std::string& name) const {
    const Table table = select_columns({name});
    std::vector<Tree> values;
    values.reserve(static_cast<std::size_t>(size()));
    for (std::int64_t i = 0; i < size(); ++i)
        values.push_back(std::move(table.get(i).entries()[0].value));
    return values;
}

std::vector<Tree> Table::unique(const std::string& name) const {
    const Table table = select_columns({name});
    std::vector<Tree> values;
    std::unordered_set<std::string> known;
    for (std::int64_t i = 0; i < size(); ++i) {
        Tree row = table.get(i);
        Tree& value = row.entries()[0].value;
        if (known.insert(key_of(value)).second) values.push_back(std::move(value));
    }
    return values;
}

Table Table::with_columns(const std::vector<std::size_t>& positions) const {
    Table table = *this;
    table.columns_.clear();
    table.wanted_.clear();
    for (const std::size_t position : positions) {
        table.columns_.push_back(columns_[position]);
        table.wanted_.push_back(wanted_[position]);
    }
    return table;
}

Table Table::select_columns(const std::vector<std::string>& names) const {
    std::vector<std::size_t> positions;
    for (const std::string& name : names) {
        const std::size_t position = position_of(name);
        if (std::ranges::find(positions, position) != positions.end())
            throw ValueError(str("select_columns: the column ", in_quotes(name), " occurs twice"));
        positions.push_back(position);
    }
    return with_columns(positions);
}

Table Table::remove_columns(const std::vector<std::string>& names) const {
    std::vector<bool> is_removed(columns_.size());
    for (const std::string& name : names) is_removed[position_of(name)] = true;
    std::vector<std::size_t> positions;
    for (std::size_t i = 0; i < columns_.size(); ++i)
        if (!is_removed[i]) positions.push_back(i);
    return with_columns(positions);
}

Table Table::rename_column(const std::string& from, const std::string& to) const {
    const std::size_t position = position_of(from);
    if (from != to && std::ranges::find(columns_, to, &TableColumn::name) != columns_.end())
        throw ValueError(str("rename_column: another column already has the name ", in_quotes(to)));
    Table table = *this;
    table.columns_[position].name = to;
    return table;
}

Table Table::class_encode_column(const std::string& name) const {
    const std::size_t position = position_of(name);
    const ColumnType type = columns_[position].type;
    if (type != ColumnType::text && type != ColumnType::integer && type != ColumnType::boolean)
        throw ValueError(str("class_encode_column: column ", in_quotes(name),
                             " must have the type text, integer or boolean: it is ", type));
    const auto text = [](const Tree& value) {
        return value.is_string() ? value.string() : to_json(value, -1);
    };
    Table plain = *this;
    plain.has_tensors_ = false;
    TableColumn column{name, ColumnType::integer};
    for (const Tree& value : plain.unique(name))
        if (!value.is_null()) column.class_names.push_back(text(value));
    std::ranges::sort(column.class_names);
    std::unordered_map<std::string, std::int64_t> ids;
    for (const std::string& label : column.class_names) ids.emplace(label, std::ssize(ids));
    Table table(rows_with_column(plain, position, std::move(column),
                                 [ids = std::move(ids), text](const Tree& value) {
                                     return value.is_null() ? Tree() : Tree(ids.at(text(value)));
                                 }));
    table.has_tensors_ = has_tensors_;
    return table;
}

Table Table::with_tensors() const {
    Table table = *this;
    table.has_tensors_ = true;
    return table;
}

Table Table::map(std::function<Tree(Tree)> function, const MapOptions& options) const {
    if (!function) throw UsageError("map: the function must not be empty");
    Table table(mapped_rows(*this, std::move(function), options.remove_columns));
    if (!options.keep_in_memory) return table;
    std::vector<Tree> rows;
    rows.reserve(static_cast<std::size_t>(size()));
    for (std::int64_t i = 0; i < size(); ++i) {
        try {
            rows.push_back(table.get(i));
        } catch (...) {
            rethrow_from(str("map: row ", i));
        }
    }
    return Table(rows_in_memory("map", rows));
}

Table Table::map_batches(const std::function<std::vector<Tree>(std::vector<Tree> rows)>& function,
                         const MapBatchesOptions& options) const {
    if (!function) throw UsageError("map_batches: the function must not be empty");
    if (options.batch_size < 1)
        throw ValueError(
            str("map_batches: batch_size must be positive: it is ", options.batch_size));
    const Table kept = remove_columns(options.remove_columns);
    std::vector<Tree> rows;
    for (std::int64_t begin = 0; begin < size(); begin += options.batch_size) {
        const std::int64_t end = std::min(size(), begin + options.batch_size);
        try {
            std::vector<Tree> batch;
            for (std::int64_t i = begin; i < end; ++i) batch.push_back(get(i));
            std::vector<Tree> changes = function(std::move(batch));
            const bool has_same_size = std::ssize(changes) == end - begin;
            for (std::size_t i = 0; i < changes.size(); ++i) {
                Tree row =
                    has_same_size ? kept.get(begin + static_cast<std::int64_t>(i)) : Tree::map();
                update_row(row, std::move(changes[i]));
                rows.push_back(std::move(row));
            }
        } catch (...) {
            rethrow_from(str("map_batches: rows ", begin, " to ", end - 1));
        }
    }
    return Table(rows_in_memory("map_batches", rows));
}

Table Table::filter(const std::function<bool(const Tree&)>& function) const {
    if (!function) throw UsageError("filter: the function must not be empty");
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < size(); ++i) {
        try {
            if (function(get(i))) indices.push_back(i);
        } catch (...) {
            rethrow_from(str("filter: row ", i));
        }
    }
    return select(indices);
}

}  // namespace axle::data
