#include "data/tables/record_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/files/folder.h"
#include "data/files/characters.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

std::string_view text_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

InputFile opened(const std::string& path) {
    InputFile file(path);
    if (file.size() == 0) throw FileError(str(printable(path), ": the file is empty"));
    return file;
}

// Returns the position of the first byte from `at` that is not ASCII, or text.size().
std::size_t find_non_ascii(std::string_view text, std::size_t at) {
    constexpr std::uint64_t kHighBits = 0x8080808080808080;
    for (; at + 8 <= text.size(); at += 8) {
        std::uint64_t bytes = 0;
        std::memcpy(&bytes, text.data() + at, 8);
        if ((bytes & kHighBits) != 0) break;
    }
    while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
    return at;
}

class IndexedFile : public RowSource {
  public:
    IndexedFile(std::unique_ptr<RecordFile> file, std::int64_t infer_rows)
        : file_(std::move(file)) {
        file_->scan(infer_rows, &offsets_);
        offsets_.shrink_to_fit();
    }
    std::int64_t size() const override { return std::ssize(offsets_); }
    const std::vector<TableColumn>& columns() const override { return file_->columns(); }
    std::vector<Tree> values(std::int64_t row, std::span<const std::size_t> wanted) const override {
        return file_->values(file_->read(offsets_[static_cast<std::size_t>(row)]), wanted);
    }
    std::string location(std::int64_t row) const override {
        return file_->location(offsets_[static_cast<std::size_t>(row)]);
    }

  private:
    std::unique_ptr<RecordFile> file_;
    std::vector<std::uint64_t> offsets_;
};

}  // namespace

std::int64_t checked_infer_rows(const char* options, const std::optional<std::int64_t>& rows,
                                std::int64_t otherwise) {
    if (rows && *rows < 1)
        throw ValueError(str(options, ": infer_rows must be at least 1: it is ", *rows));
    return rows.value_or(otherwise);
}

RecordFile::RecordFile(const std::string& path)
    : path_(path), file_(opened(path)), text_(text_of(file_)) {
    if (text_.starts_with("\xef\xbb\xbf")) first_ = 3;
}

Record RecordFile::read(std::size_t offset) const {
    Record record;
    record.end = offset;
    if (!next(record)) throw_error("the file was changed while it was read");
    return record;
}

void RecordFile::scan(std::int64_t infer_rows, std::vector<std::uint64_t>* offsets) {
    Record record;
    record.end = first_;
    for (std::int64_t row = 0; offsets != nullptr || row < infer_rows; ++row) {
        if (!next(record)) break;
        if (row < infer_rows) observe(record);
        if (offsets != nullptr) offsets->push_back(record.begin);
    }
    finish();
}

bool RecordFile::next_line(std::size_t& begin, std::size_t& end, std::size_t& next) const {
    for (std::size_t at = next; at < text_.size(); at = next) {
        const std::size_t newline = text_.find('\n', at);
        begin = at;
        end = std::min(newline, text_.size());
        next = std::min(end + 1, text_.size());
        if (end > begin && text_[end - 1] == '\r') --end;
        if (text_.substr(begin, end - begin).find_first_not_of(" \t\r") != std::string_view::npos)
            return true;
    }
    return false;
}

void RecordFile::check_utf8(std::size_t begin, std::size_t end) const {
    const std::string_view text = text_.substr(0, end);
    for (std::size_t at = begin; (at = find_non_ascii(text, at)) < end;) {
        const std::size_t length = character_length(text, at);
        if (length == 0) throw_at(at, str("byte ", at, ": the text is not valid UTF-8"));
        at += length;
    }
}

std::string RecordFile::location(std::size_t offset) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + std::ptrdiff_t(offset), '\n');
    return str(printable(path_), ": line ", line);
}

void RecordFile::throw_at(std::size_t offset, const std::string& what) const {
    throw FileError(str(location(offset), ": ", what));
}

void RecordFile::throw_error(const std::string& what) const {
    throw FileError(str(printable(path_), ": ", what));
}

std::vector<std::string> files_in(const std::string& folder) {
    std::vector<std::string> paths;
    // The last component "." makes list_folder() follow a link at `folder`.
    for (const std::string& name : list_folder(folder + "/.")) {
        std::string path = str(folder, "/", name);
        std::error_code ignored;
        if (!name.starts_with('.') && std::filesystem::is_regular_file(path, ignored))
            paths.push_back(std::move(path));
    }
    if (paths.empty())
        throw FileError(str(printable(folder), ": the folder must have a file that is not hidden"));
    return paths;
}

std::shared_ptr<const RowSource> index_rows(std::unique_ptr<RecordFile> file,
                                            std::int64_t infer_rows) {
    return std::make_shared<IndexedFile>(std::move(file), infer_rows);
}

}  // namespace axle::data
