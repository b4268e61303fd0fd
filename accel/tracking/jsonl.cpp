#include "accel/tracking/jsonl.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "core/files/file.h"

namespace axle::accel {
namespace {

// The maximum size of a line that is parsed, in bytes. Parsing needs up to 64 bytes of memory per
// byte, and a table can be a long line.
constexpr std::size_t kMaxParsed = std::size_t{1} << 20;

// Returns the step of a line, or nullopt if the line is not a JSON object with a step. A line of
// more than kMaxParsed bytes is not parsed; only the text that trackers write at its beginning and
// end is checked.
std::optional<std::int64_t> step_of_line(std::string_view line) {
    if (line.size() > kMaxParsed) {
        static constexpr std::string_view kBegin = "{\"step\": ";
        std::int64_t step = 0;
        if (!line.starts_with(kBegin) || !line.ends_with('}')) return std::nullopt;
        const auto [end, error] =
            std::from_chars(line.data() + kBegin.size(), line.data() + line.size(), step);
        if (error != std::errc() || *end != ',') return std::nullopt;
        return step;
    }
    try {
        return from_json(line)["step"].integer();
    } catch (const Error&) {
        return std::nullopt;
    }
}

// Removes the first line of a file that is incomplete, has no step, or has a step of at least
// `purge_step` (nullopt: any step is kept), and all lines after it. Creates the file if it is
// missing. Returns the step of the last line that remains, or 0. The file is memory-mapped, so that
// it can be larger than the memory.
std::int64_t remove_lines(const std::string& path, std::optional<std::int64_t> purge_step) {
    std::optional<MappedFile> file;
    std::error_code ignored;  // opening the file later throws an error
    if (std::filesystem::exists(path, ignored)) file.emplace(path);
    const std::string_view text = file ? text_of(*file) : "";
    std::size_t kept = 0;
    std::int64_t last_step = 0;
    for (std::size_t end = 0; (end = text.find('\n', kept)) != std::string_view::npos;) {
        const auto step = step_of_line(text.substr(kept, end - kept));
        if (!step || (purge_step && *step >= *purge_step)) break;
        last_step = *step;
        kept = end + 1;
    }
    write_file_atomically(path, text.substr(0, kept));
    return last_step;
}

std::string line_of(const Tree& object) { return to_json(object, -1) + '\n'; }

// Removes the first line with a step above `keep_through` (or with no step) and all lines after it,
// or all lines unless `keep_through` is positive. Returns the path.
const std::string& truncate_file(const std::string& path, std::int64_t keep_through) {
    if (keep_through > 0)
        remove_lines(path, keep_through + 1);
    else
        write_file_atomically(path, "");
    return path;
}

}  // namespace

JsonLines::JsonLines(const std::string& path, std::int64_t keep_through)
    : file_(truncate_file(path, keep_through)) {}

void JsonLines::write(const Tree& object) { file_.append(line_of(object)); }

JsonlTracker::JsonlTracker(const TrackerRun& run)
    : folder_(run.folder()),
      path_(folder_ + "/metrics.jsonl"),
      purge_step_(purge_step("jsonl", run.options)) {
    check_options("jsonl", run.options, {"purge_step"});
}

void JsonlTracker::start() {
    create_directories(folder_);
    if (purge_step_) open(purge_step_);
    started_ = true;
}

void JsonlTracker::resume(std::optional<std::int64_t> purge_step) {
    if (!purge_step_) open(purge_step);
}

void JsonlTracker::open(std::optional<std::int64_t> purge_step) {
    const std::int64_t last_step = remove_lines(path_, purge_step);
    last_step_ = purge_step ? std::max<std::int64_t>(*purge_step - 1, 0) : last_step;
    file_.emplace(path_);
}

void JsonlTracker::store_init_configuration(const Tree& config) {
    write_file_atomically(folder_ + "/config.json", to_json(summarised(config)) + '\n');
}

void JsonlTracker::log(const Tree& values, std::optional<std::int64_t> step, const Tree&) {
    if (!started_) throw UsageError("jsonl: log() was called before start() or after finish()");
    if (!file_) {
        move_aside(path_);
        open(0);
    }
    last_step_ = step.value_or(last_step_ + 1);
    Tree line{{"step", last_step_}};
    const Tree plain = summarised(values);
    for (const auto& [key, value] : plain.entries())
        if (key != "step") line.entries().push_back({key, value});
    file_->append(line_of(line));
}

void JsonlTracker::log_table(const std::string& table, const std::vector<std::string>& columns,
                             const Tree& rows, std::optional<std::int64_t> step,
                             const Tree& options) {
    Tree names = Tree::list();
    for (const std::string& column : columns) names.push_back(column);
    log(Tree{{table, {{"columns", names}, {"data", rows}}}}, step, options);
}

}  // namespace axle::accel
