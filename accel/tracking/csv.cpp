#include "accel/tracking/csv.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <utility>

#include "core/files/file.h"

namespace axle::accel {
namespace {

std::string escaped(std::string_view text) {
    const bool plain = text.find_first_of(",\"\r\n") == std::string_view::npos &&
                       (text.empty() || (text.front() != ' ' && text.back() != ' '));
    if (plain) return std::string(text);
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"') out += '"';
        out += c;
    }
    return out + '"';
}

std::string field(const Tree& value) {
    if (value.is_string()) return escaped(value.string());
    if (!value.is_number() && !value.is_boolean()) return "";
    std::string text = to_json(value, -1);
    std::erase(text, '"');  // to_json() puts NaN and infinities in quotes
    return text;
}

std::string header(const std::vector<std::string>& columns) {
    std::string line;
    for (const std::string& column : columns) line += (line.empty() ? "" : ",") + escaped(column);
    return line + '\n';
}

// The maximum size of a header that is read, in bytes: enough for ten thousand tags of a hundred
// bytes.
constexpr std::size_t kMaxHeader = std::size_t{1} << 20;

// Calls f for each record of a table, with its newline, until f returns false. A newline within
// quotes does not end a record. A last record without a newline is ignored.
template <class F>
void for_each_record(std::string_view text, F&& f) {
    bool within = false;
    std::size_t start = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '"') within = !within;
        if (text[i] != '\n' || within) continue;
        if (!f(text.substr(start, i + 1 - start))) return;
        start = i + 1;
    }
}

// Calls add(c) for each character of the fields of a record, and next() between two fields.
template <class Add, class Next>
void read_fields(std::string_view record, Add&& add, Next&& next) {
    record.remove_suffix(1);
    bool within = false;
    for (std::size_t i = 0; i < record.size(); ++i) {
        const char c = record[i];
        if (c == '"') {
            // The second of two adjacent quotes within a quoted field adds a quote to the field.
            if (!within && i > 0 && record[i - 1] == '"') add(c);
            within = !within;
        } else if (c == ',' && !within) {
            next();
        } else {
            add(c);
        }
    }
}

std::vector<std::string> fields(std::string_view record) {
    std::vector<std::string> all(1);
    read_fields(
        record, [&](char c) { all.back() += c; }, [&] { all.emplace_back(); });
    return all;
}

std::size_t count_fields(std::string_view record) {
    std::size_t count = 1;
    read_fields(
        record, [](char) {}, [&] { ++count; });
    return count;
}

std::optional<std::int64_t> step_of_record(std::string_view record) {
    std::int64_t step = 0;
    const auto [stop, error] = std::from_chars(record.data(), record.data() + record.size(), step);
    if (error != std::errc() || (*stop != ',' && *stop != '\n')) return std::nullopt;
    return step;
}

}  // namespace

CsvTracker::CsvTracker(const TrackerRun& run)
    : folder_(run.folder()),
      path_(folder_ + "/metrics.csv"),
      purge_step_(purge_step("csv", run.options)) {
    check_options("csv", run.options, {"purge_step"});
}

void CsvTracker::start() {
    create_directories(folder_);
    if (purge_step_) open(purge_step_);
    started_ = true;
}

void CsvTracker::resume(std::optional<std::int64_t> purge_step) {
    if (!purge_step_) open(purge_step);
}

// Opens the file. Removes the first row that is invalid or has a step of at least `purge_step`
// (nullopt: any step is kept), and all rows after it. The file is memory-mapped, so that it can be
// larger than the memory.
void CsvTracker::open(std::optional<std::int64_t> purge_step) {
    std::optional<MappedFile> file;
    std::error_code ignored;  // opening the file later throws an error
    if (std::filesystem::exists(path_, ignored)) file.emplace(path_);
    const std::string_view text = file ? text_of(*file) : "";
    std::size_t kept = 0;
    std::int64_t last_step = 0;
    columns_.clear();
    for_each_record(text, [&](std::string_view record) {
        if (columns_.empty()) {
            if (!record.starts_with("step,") && record != "step\n") return false;
            if (record.size() > kMaxHeader)
                throw FileError(str(printable(path_), ": the first line has ", record.size(),
                                    " bytes, more than the maximum of ", kMaxHeader,
                                    "; is it a file of the tracker csv?"));
            columns_ = fields(record);
        } else {
            const auto step = step_of_record(record);
            if (!step || count_fields(record) != columns_.size()) return false;
            if (purge_step && *step >= *purge_step) return false;
            last_step = *step;
        }
        kept += record.size();
        return true;
    });
    last_step_ = purge_step ? std::max<std::int64_t>(*purge_step - 1, 0) : last_step;
    write_file_atomically(path_, text.substr(0, kept));
    file_.emplace(path_);
}

void CsvTracker::add_columns(const std::vector<Tree::Entry>& values) {
    std::vector<std::string> columns = columns_;
    if (columns.empty()) columns.emplace_back("step");
    for (const auto& [tag, value] : values)
        if (std::find(columns.begin(), columns.end(), tag) == columns.end()) columns.push_back(tag);
    if (columns.size() == columns_.size()) return;
    const std::string padding(columns.size() - columns_.size(), ',');
    const MappedFile before(path_);
    write_file_atomically(path_, [&](AtomicFile& file) {
        constexpr std::size_t kBuffer = std::size_t{1} << 16;
        std::string rows = header(columns);
        bool first = true;
        for_each_record(text_of(before), [&](std::string_view record) {
            if (std::exchange(first, false)) return true;
            record.remove_suffix(1);
            rows.append(record).append(padding) += '\n';
            if (rows.size() > kBuffer) file.write(std::exchange(rows, {}));
            return true;
        });
        file.write(rows);
    });
    file_.emplace(path_);
    columns_ = std::move(columns);
}

void CsvTracker::log(const Tree& values, std::optional<std::int64_t> step, const Tree&) {
    if (!started_) throw UsageError("csv: log() was called before start() or after finish()");
    if (!file_) {
        move_aside(path_);
        open(0);
    }
    std::vector<Tree::Entry> leaves = flattened(summarised(values));
    std::erase_if(leaves, [](const Tree::Entry& e) {
        return e.key == "step" || e.value.is_list() || e.value.is_null();
    });
    add_columns(leaves);
    last_step_ = step.value_or(last_step_ + 1);
    std::string row = std::to_string(last_step_);
    for (std::size_t i = 1; i < columns_.size(); ++i) {
        row += ',';
        const auto found = std::find_if(leaves.begin(), leaves.end(),
                                        [&](const auto& e) { return e.key == columns_[i]; });
        if (found != leaves.end()) row += field(found->value);
    }
    file_->append(row + '\n');
}

}  // namespace axle::accel
