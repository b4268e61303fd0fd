// Metrics as JSON lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "accel/tracking/append_file.h"
#include "accel/tracking/tracker.h"
#include "core/tree/tree.h"

namespace axle::accel {

// A file with one JSON object a line, each with an integer "step". Numbers are written in the
// shortest form that reads back the same; each line is handed to the system when it is written.
class JsonLines {
  public:
    // Keeps the lines of a file that is there up to step `keep_through`, and drops the rest: those
    // of a run that went on after its checkpoint, and a line that a crash cut short. 0 starts anew.
    JsonLines(const std::string& path, std::int64_t keep_through);
    // FileError if it can't be written; then nothing of the line is.
    void write(const Tree& object);

  private:
    AppendFile file_;
};

// "jsonl": <logging_dir>/<project_name>/metrics.jsonl with a line for each log(), and the
// configuration in config.json beside it. Nested maps stay nested, tensors are summarised, tables
// become {"columns": [...], "data": [[...], ...]}. Without a step, the line counts on from the one
// before it. The option purge_step resumes, otherwise the file starts anew.
class JsonlTracker : public Tracker {
  public:
    explicit JsonlTracker(const TrackerRun& run);
    std::string name() const override { return "jsonl"; }
    bool requires_logging_directory() const override { return true; }
    void start() override;
    void store_init_configuration(const Tree& config) override;
    void log(const Tree& values, std::optional<std::int64_t> step, const Tree& options) override;
    void log_table(const std::string& table, const std::vector<std::string>& columns,
                   const Tree& rows, std::optional<std::int64_t> step,
                   const Tree& options) override;
    void finish() override { lines_.reset(); }

  private:
    std::string folder_;
    std::int64_t keep_through_;
    std::int64_t last_step_;
    std::optional<JsonLines> lines_;
};

}  // namespace axle::accel
