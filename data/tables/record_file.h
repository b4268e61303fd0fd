// Private to data/tables: files of records, which are the rows of a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/file.h"
#include "core/tree/tree.h"
#include "data/tables/columns.h"
#include "data/tables/csv_record.h"
#include "data/tables/formats.h"
#include "data/tables/row_source.h"

namespace axle::data {

// The number of rows from which streams infer columns by default.
inline constexpr std::int64_t kStreamRows = 10'000;
// Returns `rows`, the value of the option infer_rows, or `otherwise` if it is unset. Throws
// ValueError unless it is positive; the error names the type `options` of the options.
std::int64_t checked_infer_rows(const char* options, const std::optional<std::int64_t>& rows,
                                std::int64_t otherwise);

// A record of a file. next() of a RecordFile continues at byte `end`.
struct Record {
    std::size_t begin = 0, end = 0;
    std::vector<CsvField> fields = {};  // only for CSV
};

// A memory-mapped file of records. After the columns are known, several threads may call the const
// functions.
class RecordFile {
  public:
    // Maps the file and skips a byte order mark. Throws FileError if the file is missing or empty.
    explicit RecordFile(const std::string& path);
    virtual ~RecordFile() = default;
    RecordFile(const RecordFile&) = delete;
    RecordFile& operator=(const RecordFile&) = delete;

    // Finds the first record at or after byte record.end. Returns false if there is none. Throws
    // FileError if the record is not valid UTF-8 or has a wrong syntax.
    virtual bool next(Record& record) const = 0;
    // Returns the record at byte `offset`. Throws the errors of next(), and FileError if there is
    // none.
    Record read(std::size_t offset) const;
    // Infers types from a record. Called for the records from which columns are inferred. Throws
    // FileError if the record does not fit earlier ones.
    virtual void observe(const Record& record) = 0;
    // Determines the columns after the last call of observe().
    virtual void finish() = 0;
    // Returns the values of a record in the columns with the positions `wanted`. Throws FileError
    // if the record does not fit the columns.
    virtual std::vector<Tree> values(const Record& record,
                                     std::span<const std::size_t> wanted) const = 0;
    // Uses the columns of another file. Throws FileError if a CSV file has columns with other
    // names.
    virtual void adopt(const std::vector<TableColumn>& columns) = 0;

    const std::vector<TableColumn>& columns() const { return columns_; }
    // Calls observe() for the first `infer_rows` records and then finish(). If `offsets` is not
    // null, reads all records and adds the offset of each.
    void scan(std::int64_t infer_rows, std::vector<std::uint64_t>* offsets);
    // Returns the offset of the first record.
    std::size_t first() const { return first_; }
    // Returns "<path>: line <number of the line of the byte>".
    std::string location(std::size_t offset) const;

  protected:
    std::string_view text() const { return text_; }
    // Sets `begin` and `end` to the first line at or after byte `next` that is not blank, without
    // LF or CRLF, and `next` to the line after it. Returns false if there is none.
    bool next_line(std::size_t& begin, std::size_t& end, std::size_t& next) const;
    // Throws FileError unless the bytes [begin, end) are UTF-8.
    void check_utf8(std::size_t begin, std::size_t end) const;
    // Throws FileError "<path>: line <number of the line of the byte>: <what>".
    [[noreturn]] void throw_at(std::size_t offset, const std::string& what) const;
    [[noreturn]] void throw_error(const std::string& what) const;

    std::vector<TableColumn> columns_;
    std::size_t first_ = 0;

  private:
    std::string path_;
    MappedFile file_;
    std::string_view text_;
};

// Open files. Throw FileError as RecordFile does, and ValueError for invalid options.
std::unique_ptr<RecordFile> open_csv(const std::string& path, const CsvOptions& options);
std::unique_ptr<RecordFile> open_json_lines(const std::string& path,
                                            const JsonLinesOptions& options);
std::unique_ptr<RecordFile> open_text(const std::string& path, SampleBy sample_by);

// Returns the paths of the files in a folder that are not hidden, sorted by name. Follows symbolic
// links, which the caches of downloaded datasets contain. Throws FileError if there are none.
std::vector<std::string> files_in(const std::string& folder);

// Returns the records of a file as rows. Keeps 8 bytes for each row in memory.
std::shared_ptr<const RowSource> index_rows(std::unique_ptr<RecordFile> file,
                                            std::int64_t infer_rows);

}  // namespace axle::data
