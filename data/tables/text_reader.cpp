#include "data/tables/text_reader.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/files/file.h"
#include "data/tables/record_file.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

bool has_suffix(const std::string& path, std::initializer_list<const char*> suffixes) {
    return std::ranges::any_of(suffixes, [&](const char* s) { return path.ends_with(s); });
}

bool is_json(const std::string& path) { return has_suffix(path, {".jsonl", ".json", ".ndjson"}); }
bool is_csv(const std::string& path) { return has_suffix(path, {".csv", ".tsv"}); }

}  // namespace

TextReader::TextReader(const std::vector<std::string>& paths, TextReaderOptions options)
    : options_(std::move(options)), record_(std::make_unique<Record>()) {
    if (paths.empty()) throw ValueError("TextReader: needs at least one path: the list is empty");
    for (const std::string& path : paths) {
        std::error_code ignored;
        if (!std::filesystem::is_directory(path, ignored)) {
            paths_.push_back(path);
            continue;
        }
        const std::vector<std::string> files = files_in(path);
        paths_.insert(paths_.end(), files.begin(), files.end());
    }
    for (const std::string& path : paths_) {
        sizes_.push_back(InputFile(path).size());
        total_ += sizes_.back();
    }
}

TextReader::~TextReader() = default;

// Opens the file at index_. Returns false if it is empty.
bool TextReader::open_file() {
    const std::string& path = paths_[index_];
    if (sizes_[index_] == 0) return false;
    const std::string& name = options_.column;
    has_rows_ = true;
    if (is_json(path)) {
        file_ = open_json_lines(path, {.columns = {{name, ColumnType::text}}});
    } else if (is_csv(path)) {
        // Every field is a text, also if it is empty or "NA".
        file_ = open_csv(path,
                         {.delimiter = path.ends_with(".tsv") ? '\t' : ',', .missing_values = {}});
        std::vector<TableColumn> columns = file_->columns();
        for (TableColumn& column : columns) column.type = ColumnType::text;
        file_->adopt(columns);
    } else {
        has_rows_ = false;
        file_ = open_text(path, options_.sample_by);
    }
    const auto& columns = file_->columns();
    const auto found =
        has_rows_ ? std::ranges::find(columns, name, &TableColumn::name) : columns.begin();
    if (found == columns.end())
        throw FileError(
            str(printable(path), ": the file does not have the column ", in_quotes(name)));
    column_ = static_cast<std::size_t>(found - columns.begin());
    *record_ = {};
    record_->end = file_->first();
    return true;
}

bool TextReader::next(FileText& text) {
    for (; index_ < paths_.size(); done_ += sizes_[index_++]) {
        if (file_ == nullptr && !open_file()) continue;
        if (!file_->next(*record_)) {
            file_.reset();
            continue;
        }
        const std::vector<Tree> values = file_->values(*record_, {&column_, 1});
        text.offset = record_->begin;
        text.file = index_;
        if (values[0].is_null())
            throw FileError(str(file_->location(text.offset), ": the column ",
                                in_quotes(options_.column), " is missing"));
        text.text = values[0].string();
        text.is_row = has_rows_;
        text.ends_document = has_rows_ || options_.sample_by != SampleBy::part ||
                             record_->end == static_cast<std::size_t>(sizes_[index_]);
        return true;
    }
    return false;
}

std::int64_t TextReader::read_bytes() const {
    return done_ + (file_ == nullptr ? 0 : static_cast<std::int64_t>(record_->end));
}

std::string TextReader::location(const FileText& text) const {
    return open_text(paths_[text.file], SampleBy::document)->location(text.offset);
}

}  // namespace axle::data
