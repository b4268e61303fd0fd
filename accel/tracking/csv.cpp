#include "accel/tracking/csv.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

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

// Splits a table into records, each with its newline. A newline within quotes does not end a
// record. A last record without a newline is ignored.
std::vector<std::string_view> records(std::string_view text) {
    std::vector<std::string_view> all;
    bool within = false;
    std::size_t start = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '"') within = !within;
        if (text[i] != '\n' || within) continue;
        all.push_back(text.substr(start, i + 1 - start));
        start = i + 1;
    }
    return all;
}

std::vector<std::string> fields(std::string_view record) {
    record.remove_suffix(1);
    std::vector<std::string> all(1);
    bool within = false;
    for (std::size_t i = 0; i < record.size(); ++i) {
        const char c = record[i];
        if (c == '"') {
            // The second of two quotes within quotes is a character of the field.
            if (!within && i > 0 && record[i - 1] == '"') all.back() += c;
            within = !within;
        } else if (c == ',' && !within) {
            all.emplace_back();
        } else {
            all.back() += c;
        }
    }
    return all;
}

std::optional<std::int64_t> step_of(std::string_view record) {
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

// Opens the file and keeps its rows before `purge_step`, or all complete rows.
void CsvTracker::open(std::optional<std::int64_t> purge_step) {
    std::string kept;
    std::int64_t last_step = 0;
    columns_.clear();
    if (std::filesystem::exists(path_)) {
        const std::string text = read_file(path_);
        for (const std::string_view record : records(text)) {
            const std::vector<std::string> row = fields(record);
            if (columns_.empty()) {
                if (row.front() != "step") break;
                columns_ = row;
            } else {
                const auto step = step_of(record);
                if (!step || row.size() != columns_.size()) break;
                if (purge_step && *step >= *purge_step) break;
                last_step = *step;
            }
            kept += record;
        }
    }
    last_step_ = purge_step ? std::max<std::int64_t>(*purge_step - 1, 0) : last_step;
    write_file_atomically(path_, kept);
    file_.emplace(path_);
}

void CsvTracker::add_columns(const std::vector<Tree::Entry>& values) {
    std::vector<std::string> columns = columns_;
    if (columns.empty()) columns.emplace_back("step");
    for (const auto& [tag, value] : values)
        if (std::find(columns.begin(), columns.end(), tag) == columns.end()) columns.push_back(tag);
    if (columns.size() == columns_.size()) return;
    const std::string padding(columns.size() - columns_.size(), ',');
    const std::string text = read_file(path_);
    std::string all = header(columns);
    bool first = true;
    for (std::string_view record : records(text)) {
        if (std::exchange(first, false)) continue;
        record.remove_suffix(1);
        all.append(record).append(padding) += '\n';
    }
    write_file_atomically(path_, all);
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
