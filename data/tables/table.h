// Table: rows of named columns for fine-tuning, from CSV, JSON lines, text files or memory. The
// functions have the names of Dataset in Hugging Face's datasets.
//
//     auto table = data::Table::from_csv("reviews.csv").class_encode_column("label");
//     auto [train, test] = table.train_test_split({.test_size = 0.2, .seed = 42});
//     data::DataLoader loader(train, {.batch_size = 8, .shuffle = true, .collate_fn = tokenize});
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/scalar.h"
#include "core/tree/tree.h"
#include "data/dataset.h"
#include "data/tables/columns.h"
#include "data/tables/formats.h"

namespace axle::data {

class RowSource;
struct TrainTestSplit;

struct MapOptions {
    // If true, map() calls the function for all rows now and keeps the results in memory. If false,
    // the function is called each time a row is read.
    bool keep_in_memory = false;
    // The columns that are removed after the function was called for a row, before the entries that
    // it returned are added.
    std::vector<std::string> remove_columns = {};
};

struct MapBatchesOptions {
    std::int64_t batch_size = 1000;
    std::vector<std::string> remove_columns = {};  // as in MapOptions
};

struct TrainTestSplitOptions {
    // The fraction of the rows (a floating-point number in (0, 1)) or their number (an integer). As
    // in scikit-learn, the number of rows of a fraction is rounded up.
    Scalar test_size = 0.25;
    std::uint64_t seed = 0;
    bool shuffle = true;
    // The column whose values have the same proportions in both parts; requires shuffle.
    std::optional<std::string> stratify_by_column = {};
};

// An immutable dataset of rows. A row is a map with one value for each column, in their order. A
// missing value is a null Tree.
//
// Tables are cheap to copy. The functions that return tables return views, which share the rows
// with this table and stay valid without it. Rows of files are parsed when they are read: a table
// of a file needs 8 bytes of memory for each row, and a view needs 8 bytes for each row if its rows
// are selected or in another order. The files are memory-mapped, so they must not be changed or
// truncated while a table uses them (MappedFile in core/files/file.h).
//
// Several threads may call the functions of one table; the functions passed to map() are then
// called concurrently. Errors of rows in files are FileErrors with the path and the line.
class Table : public Dataset {
  public:
    // Opens a CSV file and splits all of it into fields. Types are inferred as by pandas.read_csv
    // with dtype_backend="numpy_nullable": a column of integers with missing values stays a column
    // of integers. Integers beyond int64 are text. Throws FileError if the file is missing, has no
    // rows or is not valid UTF-8, if a quote is not closed, if text follows a closing quote, or if
    // two columns have the same name. Also throws FileError if a row or column_names has another
    // number of elements than the first row, or if a value in the first infer_rows rows does not
    // have the type that the options give its column. Throws ValueError for invalid options.
    static Table from_csv(const std::string& path, const CsvOptions& options = {});
    // Opens a file with one JSON object on each line. Nested values are lists and maps. Integers in
    // a column of numbers become numbers. Throws FileError if the file is missing, empty or not
    // valid UTF-8, a line is not a JSON object, the types of a column do not fit, or keys differ in
    // strict mode; and ValueError for invalid options. Rows from which no columns are inferred are
    // parsed when they are read.
    static Table from_json(const std::string& path, const JsonLinesOptions& options = {});
    // Opens a text file, or all files of a folder in the order of their names, without subfolders
    // and hidden files. Symbolic links are followed. With SampleBy::document, files are opened, and
    // throw their errors, when they are read. Throws FileError if a file is missing or empty (a
    // document may be empty), if the text is not valid UTF-8, or if a folder has no files that are
    // read.
    static Table from_text(const std::string& path, const TextOptions& options = {});
    // Keeps rows, which must be maps, in memory. A key that a row does not have is a missing value.
    // Throws ValueError if a row is not a map or the types of a column do not fit.
    static Table from_list(const std::vector<Tree>& rows);
    // Returns the rows of several tables one after another. The columns are in the order of the
    // first table. Throws ValueError if there are no tables or if their columns differ in number,
    // types (except `null`) or class names, and IndexError if a table does not have a column of the
    // first table.
    static Table concatenate(const std::vector<Table>& tables);

    std::int64_t size() const override;
    // Returns a row. Throws IndexError unless 0 <= index < size(), and the FileError of a row that
    // does not fit the inferred columns.
    Tree get(std::int64_t index) const override;
    std::shared_ptr<const Dataset> share() const override;
    // Returns the place of a row, for error messages: "<path>: line <number>" for rows of CSV, JSON
    // lines and text files, the path for documents, or "row <index>" for rows in memory. Throws
    // IndexError unless 0 <= index < size().
    std::string location(std::int64_t index) const;

    // --- columns
    // Returns the names, types and class names of the columns.
    const std::vector<TableColumn>& schema() const { return columns_; }
    std::vector<std::string> column_names() const;
    // Returns the column with a name, or its values in all rows. Throw IndexError, which lists the
    // columns, if there is none.
    const TableColumn& column_schema(const std::string& name) const;
    std::vector<Tree> column(const std::string& name) const;
    // Returns the different values of a column in the order of their first rows. Throws IndexError
    // if there is no such column, and ValueError if a value is a tensor (also of with_tensors()).
    std::vector<Tree> unique(const std::string& name) const;
    // Return a table with these columns, in this order, or without them. Throw IndexError if a
    // column does not exist. select_columns() throws ValueError for a duplicate name.
    Table select_columns(const std::vector<std::string>& names) const;
    Table remove_columns(const std::vector<std::string>& names) const;
    // Returns a table in which a column has another name. Throws IndexError if the column does not
    // exist, and ValueError if another column has the new name.
    Table rename_column(const std::string& from, const std::string& to) const;
    // Returns a table in which the values of a column of text, integers or booleans are the
    // positions of their texts in the sorted class names. Missing values stay missing. Reads the
    // column. Throws IndexError if the column does not exist, and ValueError for other types.
    Table class_encode_column(const std::string& name) const;
    // Returns a table whose rows have tensors, as with_format("torch") of datasets: integers are
    // i64 scalars, numbers f32 scalars and booleans bool scalars. Lists of them become tensors if
    // their lengths are equal. Other values stay as they are.
    Table with_tensors() const;

    // --- rows
    // Returns a table with the entries of function(row) added to each row, in place of entries with
    // the same keys. The function must depend only on the row, and return a map with the same keys
    // for all rows. It is called for the first row now, to find the columns and their types. Throws
    // UsageError if the function is empty, ValueError if it does not return a map, and IndexError
    // if remove_columns has an unknown name. Reading a row throws ValueError if it has other keys
    // than the first row. With keep_in_memory, all rows are read now, and the types of a column
    // that do not fit throw ValueError.
    Table map(std::function<Tree(Tree row)> function, const MapOptions& options = {}) const;
    // Calls the function for batches of rows now, for example to tokenize them, and keeps the
    // results in memory. If the function returns as many maps as it gets rows, their entries are
    // added to the rows as by map(). Otherwise they are the new rows. Throws the errors of map(),
    // ValueError unless batch_size is positive, and the errors of from_list().
    Table map_batches(const std::function<std::vector<Tree>(std::vector<Tree> rows)>& function,
                      const MapBatchesOptions& options = {}) const;
    // Returns the rows for which the function returns true. Calls it for each row now. Throws
    // UsageError if the function is empty; its exceptions are rethrown with the index of the row.
    Table filter(const std::function<bool(const Tree& row)>& function) const;
    // Returns the rows at some indices, in their order. Throws IndexError unless each index is in
    // [0, size()).
    Table select(const std::vector<std::int64_t>& indices) const;
    // Returns the rows in a random order, the order of torch.randperm for the seed.
    Table shuffle(std::uint64_t seed = 0) const;
    // Returns part `index` of `num_shards` parts whose sizes differ by at most 1: consecutive rows,
    // or every num_shards-th row. Throws ValueError unless 0 <= index < num_shards.
    Table shard(std::int64_t num_shards, std::int64_t index, bool contiguous = true) const;
    // Divides the rows into two tables. The sizes are computed as in scikit-learn. The rows are in
    // the order of shuffle(seed), or in their own order if options.shuffle is false. With
    // stratify_by_column, the classes are the values of a column of text, integers or booleans.
    // Throws ValueError if test_size is out of range or a part has no rows, if stratify_by_column
    // is used without shuffle or for a column of another type, if a class has a single row, or if a
    // part has fewer rows than there are classes; and IndexError for an unknown column.
    TrainTestSplit train_test_split(const TrainTestSplitOptions& options = {}) const;

  private:
    explicit Table(std::shared_ptr<const RowSource> source);
    std::size_t position_of(const std::string& name) const;  // throws IndexError
    std::int64_t source_row(std::int64_t index) const;       // throws IndexError
    Table with_columns(const std::vector<std::size_t>& positions) const;

    std::shared_ptr<const RowSource> source_;
    // The rows of the source, or null for all rows.
    std::shared_ptr<const std::vector<std::int64_t>> rows_;
    std::vector<TableColumn> columns_;
    std::vector<std::size_t> wanted_;  // for each column, its position in the source
    bool has_tensors_ = false;
};

struct TrainTestSplit {
    Table train, test;
};

}  // namespace axle::data
