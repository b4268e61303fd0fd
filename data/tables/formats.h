// Options of the files that Table reads, and streams of the rows of several files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/loading/iterable.h"
#include "data/tables/columns.h"

namespace axle::data {

// The options of CSV files (RFC 4180). A row ends with LF or CRLF. A field in quotes can contain
// delimiters, line ends and doubled quotes. Empty lines are skipped.
struct CsvOptions {
    // Both must be different ASCII characters other than a line end. The delimiter of TSV files is
    // '\t'. The quote is '\0' if fields are never in quotes; the delimiter must not be '\0'.
    char delimiter = ',', quote = '"';
    // Whether the first row has the names of the columns. An empty name becomes "Unnamed: <i>".
    bool header = true;
    // The names of the columns, in place of the names of the header. Without names and header, the
    // names are "0", "1", ...
    std::vector<std::string> column_names = {};
    // The types of columns: text, integer, number or boolean. The type of any other column is
    // inferred.
    std::vector<std::pair<std::string, ColumnType>> types = {};
    // The number of rows, at least 1, from which types are inferred. If unset, Table uses all rows,
    // and streams use the first 10,000 rows.
    std::optional<std::int64_t> infer_rows = {};
    // Fields that are missing values, in columns of any type, with or without quotes. The default
    // is the list of pandas.
    std::vector<std::string> missing_values = {"",         "#N/A", "#N/A N/A", "#NA",    "-1.#IND",
                                               "-1.#QNAN", "-NaN", "-nan",     "1.#IND", "<NA>",
                                               "1.#QNAN",  "N/A",  "NA",       "NULL",   "NaN",
                                               "None",     "n/a",  "nan",      "null"};
};

// The options of JSON lines: text with one JSON object on each line. Blank lines are skipped.
struct JsonLinesOptions {
    // If true, every object must have the keys of the first object, or of `columns` if they are
    // given. If false, the columns are the union of all keys, and a key that an object does not
    // have is a missing value.
    bool strict = false;
    // The columns, in place of the inferred ones. Other keys of the objects are then ignored, and
    // rows are parsed only when they are read. Class names and the type `tensor` are not supported.
    std::vector<TableColumn> columns = {};
    // The number of rows, at least 1, from which columns are inferred. If unset, Table uses all
    // rows, and streams use the first 10,000 rows.
    std::optional<std::int64_t> infer_rows = {};
};

// Selects the rows of a text file: its lines, its paragraphs (lines without an empty line between
// them), the complete file, or parts of it. Parts have at least 64 KiB, except for the last one,
// and all of them together are the file. They end at a line end between two lines that are not
// blank, where tokenizers that divide texts into words, such as those of GPT-2 and Llama 3, find
// the same words in the parts as in the file.
enum class SampleBy : std::uint8_t { line, paragraph, document, part };

// The options of text files. The rows have one column, "text". The text of a line or paragraph does
// not include the LF or CRLF at its end.
struct TextOptions {
    SampleBy sample_by = SampleBy::line;
};

// Return the rows of several files, read in sequence. Each file is a shard (from_shards()), so that
// processes can read different files. Files are opened when they are read. All files have the
// columns of the first file, from which the columns are inferred now. Values are converted as by
// Table::from_csv(), from_json() and from_text(), and errors are the same; a row that does not fit
// the inferred columns, or a CSV file with other columns, throws FileError when it is read. Throw
// ValueError if there are no paths, and for invalid options. stream_text() does not accept folders
// and empty files.
ShardedDataset stream_csv(const std::vector<std::string>& paths, const CsvOptions& options = {});
ShardedDataset stream_json(const std::vector<std::string>& paths,
                           const JsonLinesOptions& options = {});
ShardedDataset stream_text(const std::vector<std::string>& paths, const TextOptions& options = {});

}  // namespace axle::data
