#include "accel/tracking/jsonl.h"

#include <algorithm>
#include <fstream>

#include "core/files/file.h"

namespace axle::accel {
namespace {

struct Kept {
    std::string lines = {};
    std::int64_t last_step = 0;
};

// Returns the lines of a file before the first line that is not complete, is not a JSON object with
// a step, or has the step `purge_step` or a later one. Returns no lines if the file is missing.
Kept kept_lines(const std::string& path, std::optional<std::int64_t> purge_step) {
    Kept kept;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line) && !file.eof();) {
        try {
            const std::int64_t step = from_json(line)["step"].integer();
            if (purge_step && step >= *purge_step) break;
            kept.last_step = step;
        } catch (const Error&) {
            break;
        }
        kept.lines += line + '\n';
    }
    return kept;
}

std::string line_of(const Tree& object) { return to_json(object, -1) + '\n'; }

// Removes lines with later steps, and returns the path.
const std::string& truncate_file(const std::string& path, std::int64_t keep_through) {
    write_file_atomically(path, keep_through > 0 ? kept_lines(path, keep_through + 1).lines : "");
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

// Opens the file and keeps its lines before `purge_step`, or all complete lines.
void JsonlTracker::open(std::optional<std::int64_t> purge_step) {
    const Kept kept = kept_lines(path_, purge_step);
    write_file_atomically(path_, kept.lines);
    last_step_ = purge_step ? std::max<std::int64_t>(*purge_step - 1, 0) : kept.last_step;
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
        if (key != "step") line.set(key, value);
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
