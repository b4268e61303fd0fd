// JsonlTracker, a tracker that writes JSON lines, and JsonLines, a file of JSON lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "accel/tracking/append_file.h"
#include "accel/tracking/tracker.h"
#include "core/tree/tree.h"

namespace axle::accel {

// A file with one JSON object per line, each with an integer "step". Numbers have the fewest digits
// that preserve the value. Lines are written without a buffer.
class JsonLines {
  public:
    // Opens a file. Keeps the lines of an existing file up to the first line that has a step above
    // `keep_through`, has no step or is incomplete. Removes the remaining lines, because the
    // earlier run logged them after its last checkpoint. An existing file is memory-mapped while
    // its lines are read. Lines over 1 MiB are not parsed; only their step is read. If keep_through
    // is not positive, replaces the file without reading it. Throws FileError if the file can't be
    // read or written.
    JsonLines(const std::string& path, std::int64_t keep_through);
    // Appends a line. If it can't be written, throws FileError, and the file is unchanged.
    void write(const Tree& object);

  private:
    AppendFile file_;
};

// The tracker "jsonl". It writes a line for each log() and log_table() to
// <logging_dir>/<project_name>/metrics.jsonl, and the configuration to config.json in the same
// folder. Nested maps stay nested, tensors are summarized, the tag "step" is ignored, and tables
// become {"columns": [...], "data": [[...], ...]}. Steps that are not given, existing files and the
// option purge_step have the same meaning as in CsvTracker. log() throws UsageError before start()
// and after finish().
class JsonlTracker : public Tracker {
  public:
    // Throws ValueError for an unknown option or an invalid purge_step.
    explicit JsonlTracker(const TrackerRun& run);
    std::string name() const override { return "jsonl"; }
    bool requires_logging_directory() const override { return true; }
    void start() override;
    void resume(std::optional<std::int64_t> purge_step) override;
    void store_init_configuration(const Tree& config) override;
    void log(const Tree& values, std::optional<std::int64_t> step, const Tree& options) override;
    void log_table(const std::string& table, const std::vector<std::string>& columns,
                   const Tree& rows, std::optional<std::int64_t> step,
                   const Tree& options) override;
    void finish() override { file_.reset(), started_ = false; }

  private:
    void open(std::optional<std::int64_t> purge_step);

    std::string folder_, path_;
    std::optional<std::int64_t> purge_step_;  // the option purge_step
    std::int64_t last_step_ = 0;
    bool started_ = false;
    std::optional<AppendFile> file_;
};

}  // namespace axle::accel
