// Text files as records, and streams of the records of files of all formats.
#include <algorithm>
#include <functional>
#include <utility>

#include "data/files/characters.h"
#include "data/tables/record_file.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

// The lines or paragraphs of a file, or its complete text, as records.
class TextRecords : public RecordFile {
  public:
    TextRecords(const std::string& path, SampleBy sample_by)
        : RecordFile(path), sample_by_(sample_by) {
        columns_ = {{"text", ColumnType::text}};
    }

    bool next(Record& record) const override {
        record.fields.clear();
        if (record.end == text().size()) return false;
        std::size_t end = 0;
        if (sample_by_ == SampleBy::document) {
            record.begin = record.end;
            end = record.end = text().size();
        } else if (sample_by_ == SampleBy::part) {
            record.begin = record.end;
            end = record.end = part_end(record.begin);
        } else if (sample_by_ == SampleBy::line) {
            end = line(record);
        } else if (!paragraph(record, end)) {
            return false;
        }
        check_utf8(record.begin, end);
        record.fields.push_back({text().substr(record.begin, end - record.begin)});
        return true;
    }
    void observe(const Record&) override {}
    void finish() override {}
    std::vector<Tree> values(const Record& record,
                             std::span<const std::size_t> wanted) const override {
        std::vector<Tree> values;
        if (!wanted.empty()) values.emplace_back(record.fields[0].text);
        return values;
    }
    void adopt(const std::vector<TableColumn>&) override {}

  private:
    // Returns the end of the part that begins at a byte: the first position where the text can be
    // divided after kPartSize bytes, or the next line end if there is none in kMaxSearch bytes.
    std::size_t part_end(std::size_t begin) const {
        const std::size_t last = begin + kPartSize + kMaxSearch;
        for (std::size_t at = begin + kPartSize; at < text().size();) {
            const std::size_t newline = text().find('\n', at);
            if (newline == std::string_view::npos) break;
            if (newline >= last || is_between_words(newline)) return newline + 1;
            // Division before the line end, which is LF or CRLF.
            const std::size_t before = text()[newline - 1] == '\r' ? newline - 1 : newline;
            if (is_alphanumeric(text()[before - 1])) return before;
            at = newline + 1;
        }
        return text().size();
    }
    // Returns whether the characters before and after a LF are not white space. Expressions for
    // white space such as \s+(?!\S) then match the LF alone, also at the end of a text.
    bool is_between_words(std::size_t newline) const {
        std::size_t before = newline - 1;
        while (newline - before < 4 && (static_cast<unsigned char>(text()[before]) & 0xC0u) == 0x80)
            --before;
        return newline + 1 < text().size() && is_word_part(before) && is_word_part(newline + 1);
    }
    // Returns whether a byte begins a character that is not white space.
    bool is_word_part(std::size_t at) const {
        const std::size_t length = character_length(text(), at);
        return length > 0 && !is_space(code_point(text().substr(at, length)));
    }
    static bool is_alphanumeric(char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    }
    // Returns whether a character has the property White_Space of Unicode.
    static bool is_space(std::uint32_t code) {
        return (code >= 9 && code <= 13) || code == 32 || code == 0x85 || code == 0xA0 ||
               code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
               code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
    }
    static constexpr std::size_t kPartSize = std::size_t{64} << 10;
    static constexpr std::size_t kMaxSearch = std::size_t{16} << 20;

    // Sets the record to the line at record.end. Returns the end of its text.
    std::size_t line(Record& record) const {
        record.begin = record.end;
        const std::size_t newline = text().find('\n', record.begin);
        std::size_t end = std::min(newline, text().size());
        record.end = std::min(end + 1, text().size());
        if (end > record.begin && text()[end - 1] == '\r') --end;
        return end;
    }
    // Sets the record to the next lines that are not empty, and `end` to the end of the text of the
    // last one. Returns false if there are none.
    bool paragraph(Record& record, std::size_t& end) const {
        Record current;
        current.end = record.end;
        bool found = false;
        while (current.end < text().size()) {
            const std::size_t line_end = line(current);
            if (line_end == current.begin) {
                if (found) break;
                continue;
            }
            if (!found) record.begin = current.begin;
            found = true;
            end = line_end;
            record.end = current.end;
        }
        return found;
    }

    SampleBy sample_by_;
};

using Open = std::function<std::unique_ptr<RecordFile>(const std::string& path)>;

// Reads the records of a file in sequence.
class FileStream : public Stream {
  public:
    explicit FileStream(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {
        record_.end = file_->first();
        for (std::size_t i = 0; i < file_->columns().size(); ++i) all_.push_back(i);
    }
    std::optional<Tree> next() override {
        if (!file_->next(record_)) return std::nullopt;
        return row_of(file_->columns(), file_->values(record_, all_));
    }
    std::int64_t skip(std::int64_t n) override {
        std::int64_t skipped = 0;
        while (skipped < n && file_->next(record_)) ++skipped;
        return skipped;
    }

  private:
    std::unique_ptr<RecordFile> file_;
    Record record_;
    std::vector<std::size_t> all_;
};

class FileRows : public IterableDataset {
  public:
    FileRows(std::string path, Open open, std::vector<TableColumn> columns)
        : path_(std::move(path)), open_(std::move(open)), columns_(std::move(columns)) {}
    std::unique_ptr<Stream> stream(std::int64_t) const override {
        std::unique_ptr<RecordFile> file = open_(path_);
        file->adopt(columns_);
        return std::make_unique<FileStream>(std::move(file));
    }

  private:
    std::string path_;
    Open open_;
    std::vector<TableColumn> columns_;
};

ShardedDataset stream_files(const char* who, const std::vector<std::string>& paths,
                            std::int64_t infer_rows, const Open& open) {
    if (paths.empty()) throw ValueError(str(who, ": needs at least one path: the list is empty"));
    const std::unique_ptr<RecordFile> first = open(paths[0]);
    first->scan(infer_rows, nullptr);
    std::vector<std::shared_ptr<const IterableDataset>> files;
    files.reserve(paths.size());
    for (const std::string& path : paths)
        files.push_back(std::make_shared<FileRows>(path, open, first->columns()));
    return from_shards(std::move(files));
}

}  // namespace

std::unique_ptr<RecordFile> open_text(const std::string& path, SampleBy sample_by) {
    return std::make_unique<TextRecords>(path, sample_by);
}

ShardedDataset stream_csv(const std::vector<std::string>& paths, const CsvOptions& options) {
    return stream_files("stream_csv", paths,
                        checked_infer_rows("CsvOptions", options.infer_rows, kStreamRows),
                        [options](const std::string& path) { return open_csv(path, options); });
}

ShardedDataset stream_json(const std::vector<std::string>& paths, const JsonLinesOptions& options) {
    return stream_files(
        "stream_json", paths,
        checked_infer_rows("JsonLinesOptions", options.infer_rows, kStreamRows),
        [options](const std::string& path) { return open_json_lines(path, options); });
}

ShardedDataset stream_text(const std::vector<std::string>& paths, const TextOptions& options) {
    const SampleBy sample_by = options.sample_by;
    return stream_files("stream_text", paths, 0, [sample_by](const std::string& path) {
        return open_text(path, sample_by);
    });
}

}  // namespace axle::data
