// Reads the texts of text files, JSON lines and CSV files one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tables/formats.h"

namespace axle::data {

class RecordFile;
struct Record;

struct TextReaderOptions {
    // The column with the texts, of JSON lines and CSV files.
    std::string column = "text";
    // The texts of other files, which are text files.
    SampleBy sample_by = SampleBy::part;
};

// A text of a file.
struct FileText {
    std::string text;
    std::size_t file = 0;       // the index of the file in TextReader::paths()
    std::size_t offset = 0;     // the byte of the file at which the text or its row begins
    bool ends_document = true;  // false for parts of a file, except for the last one
    bool is_row = false;        // whether the text is a value of a column
};

// Reads the texts of several files in sequence. The name of a file determines its format: *.jsonl,
// *.json and *.ndjson are JSON lines, *.csv and *.tsv are tables with a header, and other files are
// text files. Files are mapped, so that a large file needs no memory. Empty files have no texts.
// Used by one thread; other threads can call location().
class TextReader {
  public:
    // Each path is a file, or a folder, which stands for its files in the order of their names,
    // without subfolders and hidden files. Throws ValueError if there are no paths, and FileError
    // if a path is missing or a folder has no files.
    explicit TextReader(const std::vector<std::string>& paths, TextReaderOptions options = {});
    ~TextReader();
    TextReader(const TextReader&) = delete;
    TextReader& operator=(const TextReader&) = delete;

    // Sets `text` to the next text and returns true, or returns false after the last one. Throws
    // FileError, with the file and the line, if a text is not valid UTF-8, if a row has a wrong
    // syntax or if its value of the column is missing or not a text.
    bool next(FileText& text);

    const std::vector<std::string>& paths() const { return paths_; }
    // Return the size of all files, and the number of bytes that were read, for progress.
    std::int64_t total_bytes() const { return total_; }
    std::int64_t read_bytes() const;
    // Returns "<path>: line <number>", the place where a text begins. Reads the file up to there.
    std::string location(const FileText& text) const;

  private:
    bool open_file();

    TextReaderOptions options_;
    std::vector<std::string> paths_;
    std::vector<std::int64_t> sizes_;
    std::int64_t total_ = 0, done_ = 0;  // bytes of all files, and of the files before this one
    std::size_t index_ = 0;
    std::unique_ptr<RecordFile> file_;  // null before a file is opened
    std::unique_ptr<Record> record_;
    std::size_t column_ = 0;
    bool has_rows_ = false;
};

}  // namespace axle::data
