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
    // The first step that a resumed run writes again: TensorBoard drops events of earlier files in
    // the folder from this step on.
    std::optional<std::int64_t> purge_step = {};
    std::string filename_suffix = {};
};

// As PyTorch's SummaryWriter: writes a new file events.out.tfevents.<time>.<host>.<pid>.<n> to a
// folder, which is created. Events are buffered until flush(), or until they take a megabyte.
// Throws FileError if the file can't be written: then buffered events are lost, and the file stays
// usable. Used by one thread.
class SummaryWriter {
  public:
    explicit SummaryWriter(const std::string& log_dir, SummaryWriterOptions options = {});
    // Flushes, and logs errors.
    ~SummaryWriter();
    SummaryWriter(const SummaryWriter&) = delete;
    SummaryWriter& operator=(const SummaryWriter&) = delete;

    const std::string& path() const { return file_.path(); }
    // Adds a value, stored as f32.
    void add_scalar(std::string_view tag, double value, std::int64_t step = 0);
    // Adds Markdown text.
    void add_text(std::string_view tag, std::string_view text, std::int64_t step = 0);
    // Adds a histogram of the finite elements (accel/tracking/histogram.h), if there are any.
    void add_histogram(std::string_view tag, const Tensor& values, std::int64_t step = 0);
    // Adds an image (accel/tracking/image.h).
    void add_image(std::string_view tag, const Tensor& image, std::int64_t step = 0,
                   std::string_view dataformats = {});
    // Adds the run's hyperparameters, a map; nested maps become "outer/inner". They are written to
    // the run's own file, so that the HParams tab shows them with its scalars.
    void add_hparams(const Tree& hparams);
    // Marks the run with these hyperparameters as succeeded.
    void add_hparams_end();
    void flush();

  private:
    void add(std::int64_t step, std::string_view value);

    AppendFile file_;
    std::string pending_;
};

// The tracker "tensorboard": a SummaryWriter on <logging_dir>/<project_name>, flushed with each
// log(). Numbers become scalars, strings texts, tensors histograms, nested maps tags with slashes,
// and tables texts with a Markdown table; lists are left out. The configuration is written to the
// HParams tab and to hparams.yml. Options: purge_step, filename_suffix, and max_queue and
// flush_secs, which have no effect. The default step is 0.
class TensorBoardTracker : public Tracker {
  public:
    explicit TensorBoardTracker(const TrackerRun& run);
    // Throws UsageError before start() and after finish().
    SummaryWriter& writer();

    std::string name() const override { return "tensorboard"; }
    bool requires_logging_directory() const override { return true; }
    void start() override;
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
