// Metrics as a table of comma-separated values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "accel/tracking/append_file.h"
#include "accel/tracking/tracker.h"

namespace axle::accel {

// "csv": <logging_dir>/<project_name>/metrics.csv with a row for each log(). The first column is
// the step, the others are the tags in the order in which they came up; a row leaves empty what it
// doesn't say. A tag that comes up later adds a column: then the file is written anew, and replaced
// as a whole. Fields are quoted as RFC 4180 says, lines end with a newline alone, numbers have the
// fewest digits that read back the same. Tensors are summarised; lists are left out. Without a
// step, the row counts on from the one before it. The option purge_step resumes, otherwise the file
// starts anew.
class CsvTracker : public Tracker {
  public:
    explicit CsvTracker(const TrackerRun& run);
    std::string name() const override { return "csv"; }
    bool requires_logging_directory() const override { return true; }
    void start() override;
    void log(const Tree& values, std::optional<std::int64_t> step, const Tree& options) override;
    void finish() override { file_.reset(); }

  private:
    void add_columns(const std::vector<Tree::Entry>& values);

    std::string folder_, path_;
    std::int64_t keep_through_;
    std::int64_t last_step_;
    std::vector<std::string> columns_;  // none before the first row
    std::optional<AppendFile> file_;
};

}  // namespace axle::accel
