// A writer and a tracker for TensorBoard's event files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accel/tracking/append_file.h"
#include "accel/tracking/tracker.h"
#include "core/tensor.h"
#include "core/tree/tree.h"

namespace axle::accel {

struct SummaryWriterOptions {
    // The first step that a resumed run writes again. TensorBoard ignores events of earlier files
    // in the folder with this step or a later one.
    std::optional<std::int64_t> purge_step = {};
    std::string filename_suffix = {};  // appended to the name of the file
};

// A writer of event files, equivalent to PyTorch's SummaryWriter. Creates a folder, and in it a new
// file events.out.tfevents.<time>.<host>.<pid>.<n>. Events are buffered until flush(), or until the
// buffer has 1 MiB. If the file can't be written, throws FileError and drops the buffered events;
// later events can still be written. Used by one thread.
class SummaryWriter {
  public:
    explicit SummaryWriter(const std::string& log_dir, SummaryWriterOptions options = {});
    // Writes buffered events. Handles an error according to the error policy (core/system/log.h)
    // and does not throw.
    ~SummaryWriter();
    SummaryWriter(const SummaryWriter&) = delete;
    SummaryWriter& operator=(const SummaryWriter&) = delete;

    const std::string& path() const { return file_.path(); }
    // Makes TensorBoard ignore earlier events of the folder with this step or a later one.
    void purge(std::int64_t step);
    // Adds a scalar, which is stored as f32.
    void add_scalar(std::string_view tag, double value, std::int64_t step = 0);
    // Adds a text in Markdown.
    void add_text(std::string_view tag, std::string_view text, std::int64_t step = 0);
    // Adds a histogram of the finite elements (accel/tracking/histogram.h), if there are any.
    void add_histogram(std::string_view tag, const Tensor& values, std::int64_t step = 0);
    // Adds an image; accel/tracking/image.h documents its dtype, shape and `dataformats`.
    void add_image(std::string_view tag, const Tensor& image, std::int64_t step = 0,
                   std::string_view dataformats = {});
    // Adds the run's hyperparameters, a map without its null entries; entries of nested maps get
    // names such as "outer/inner". They are written to the same file as the scalars, so that the
    // HParams tab shows both together.
    void add_hparams(const Tree& hparams);
    // Adds an event that marks the run as succeeded in the HParams tab.
    void add_hparams_end();
    // Writes the buffered events to the file.
    void flush();

  private:
    void add(std::int64_t step, std::string_view value);

    AppendFile file_;
    std::string pending_;
};

// The tracker "tensorboard": a SummaryWriter for the folder <logging_dir>/<project_name>. Each
// log() flushes the writer. Numbers, booleans and tensors of one element are written as scalars,
// and other tensors as histograms. Strings are written as texts, and tables as Markdown. Tags of
// nested maps are joined with slashes; lists and null are ignored. The images of a list get the
// tags "tag/0", "tag/1" and so on. The configuration is written to the HParams tab and to
// hparams.yml. Options: purge_step and filename_suffix; max_queue and flush_secs have no effect.
// The default step is 0. Every run adds a file. After load_state(), TensorBoard ignores earlier
// values that the run logs again (Tracker::resume), unless the option purge_step is given.
class TensorBoardTracker : public Tracker {
  public:
    // Throws ValueError for an unknown option or an invalid purge_step.
    explicit TensorBoardTracker(const TrackerRun& run);
    // Returns the writer. Throws UsageError before start() and after finish().
    SummaryWriter& writer();

    std::string name() const override { return "tensorboard"; }
    bool requires_logging_directory() const override { return true; }
    void start() override;
    void resume(std::optional<std::int64_t> purge_step) override;
    void store_init_configuration(const Tree& config) override;
    void log(const Tree& values, std::optional<std::int64_t> step, const Tree& options) override;
    void log_images(const Tree& images, std::optional<std::int64_t> step,
                    const Tree& options) override;
    void log_table(const std::string& table, const std::vector<std::string>& columns,
                   const Tree& rows, std::optional<std::int64_t> step,
                   const Tree& options) override;
    void finish() override;

  private:
    std::string folder_;
    SummaryWriterOptions options_;
    std::optional<SummaryWriter> writer_;
    bool has_hparams_ = false;
};

}  // namespace axle::accel
