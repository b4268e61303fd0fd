// CsvTracker: a tracker that writes a CSV file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "accel/tracking/append_file.h"
#include "accel/tracking/tracker.h"

namespace axle::accel {

// The tracker "csv", which writes <logging_dir>/<project_name>/metrics.csv with a row for each
// log(). The first column is the step; the other columns are the tags in the order of their first
// use. Fields without a value are empty. For a new tag, the file is rewritten with an additional
// column and replaced atomically. This is slow for a long file, so log all tags in the first row.
// Fields are quoted as in RFC 4180, and lines end with a newline. Numbers have the fewest digits
// that preserve the value. Tensors are summarized; lists, null and the tag "step" are ignored. A
// row without a step gets the step of the previous row plus 1. The first row of a new file gets 1,
// and the first row after a purge gets the step of the purge, but at least 1.
//
// The first log() opens the file. After load_state() it continues an existing file without the rows
// that the run logs again (Tracker::resume). In a new run it renames an existing file to
// metrics.1.csv, metrics.2.csv and so on. With the option purge_step, start() opens the file and
// removes the first row that is invalid or has this step or a later step, and all rows after it.
// For this, the file is memory-mapped, so that it can be larger than the memory. A file whose first
// line is not a header of this tracker becomes empty. Throws FileError if the first line has more
// than 1 MiB. log() throws UsageError before start() and after finish().
class CsvTracker : public Tracker {
  public:
    // Throws ValueError for an unknown option or an invalid purge_step.
    explicit CsvTracker(const TrackerRun& run);
    std::string name() const override { return "csv"; }
    bool requires_logging_directory() const override { return true; }
    void start() override;
    void resume(std::optional<std::int64_t> purge_step) override;
    void log(const Tree& values, std::optional<std::int64_t> step, const Tree& options) override;
    void finish() override { file_.reset(), started_ = false; }

  private:
    void open(std::optional<std::int64_t> purge_step);
    void add_columns(const std::vector<Tree::Entry>& values);

    std::string folder_, path_;
    std::optional<std::int64_t> purge_step_;  // the option purge_step
    std::int64_t last_step_ = 0;
    bool started_ = false;
    std::vector<std::string> columns_;  // empty before the first row
    std::optional<AppendFile> file_;
};

}  // namespace axle::accel
