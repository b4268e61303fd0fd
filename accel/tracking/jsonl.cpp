#include "accel/tracking/jsonl.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/files/file.h"

namespace axle::accel {
namespace {

// Returns the lines of a file with steps up to `keep_through`. Stops at the first line that is not
// a JSON object.
std::string kept_lines(const std::string& path, std::int64_t keep_through) {
    std::string kept;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line) && !file.eof();) {
        try {
            if (from_json(line)["step"].integer() > keep_through) break;
        } catch (const Error&) {
            break;
        }
        kept += line + '\n';
    }
    return kept;
}

// Removes the lines that kept_lines() does not return, and returns the path.
const std::string& truncate_file(const std::string& path, std::int64_t keep_through) {
    const bool exists = std::filesystem::exists(path);
    write_file_atomically(path, exists && keep_through > 0 ? kept_lines(path, keep_through) : "");
    return path;
}

}  // namespace

JsonLines::JsonLines(const std::string& path, std::int64_t keep_through)
    : file_(truncate_file(path, keep_through)) {}

void JsonLines::write(const Tree& object) { file_.append(to_json(object, -1) + '\n'); }

// keep_through_ is 0 without purge_step; then the file is replaced.
JsonlTracker::JsonlTracker(const TrackerRun& run)
    : folder_(run.folder()),
      keep_through_(std::max<std::int64_t>(purge_step("jsonl", run.options).value_or(0) - 1, 0)),
      last_step_(keep_through_) {
    check_options("jsonl", run.options, {"purge_step"});
}

void JsonlTracker::start() {
    create_directories(folder_);
    lines_.emplace(folder_ + "/metrics.jsonl", keep_through_);
}

void JsonlTracker::store_init_configuration(const Tree& config) {
    write_file_atomically(folder_ + "/config.json", to_json(summarised(config)) + '\n');
}

void JsonlTracker::log(const Tree& values, std::optional<std::int64_t> step, const Tree&) {
    if (!lines_) throw UsageError("jsonl: log() was called before start() or after finish()");
    last_step_ = step.value_or(last_step_ + 1);
    Tree line{{"step", last_step_}};
    const Tree plain = summarised(values);
    for (const auto& [key, value] : plain.entries())
        if (key != "step") line.set(key, value);
    lines_->write(line);
}

void JsonlTracker::log_table(const std::string& table, const std::vector<std::string>& columns,
                             const Tree& rows, std::optional<std::int64_t> step,
                             const Tree& options) {
    Tree names = Tree::list();
    for (const std::string& column : columns) names.push_back(column);
    log(Tree{{table, {{"columns", names}, {"data", rows}}}}, step, options);
}

}  // namespace axle::accel
