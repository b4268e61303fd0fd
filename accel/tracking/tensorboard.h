// Event files that TensorBoard reads.
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
    // The first step that a resumed run writes again: TensorBoard drops what earlier files of the
    // folder say from this step on.
    std::optional<std::int64_t> purge_step = {};
    std::string filename_suffix = {};
};

// PyTorch's SummaryWriter: a new file events.out.tfevents.<time>.<host>.<pid>.<n> in a folder,
// which is created. What is added is gathered until flush(), or until it is a megabyte. FileError
// if it can't be written; then what was gathered is lost, and the file is good for more. One thread
// at a time.
class SummaryWriter {
  public:
    explicit SummaryWriter(const std::string& log_dir, SummaryWriterOptions options = {});
    // Flushes, and says on the log sink what doesn't succeed.
    ~SummaryWriter();
    SummaryWriter(const SummaryWriter&) = delete;
    SummaryWriter& operator=(const SummaryWriter&) = delete;

    const std::string& path() const { return file_.path(); }
    // Kept as f32.
    void add_scalar(std::string_view tag, double value, std::int64_t step = 0);
    // Markdown.
    void add_text(std::string_view tag, std::string_view text, std::int64_t step = 0);
    // Finite elements only (accel/tracking/histogram.h); a tensor without any adds nothing.
    void add_histogram(std::string_view tag, const Tensor& values, std::int64_t step = 0);
    // accel/tracking/image.h
    void add_image(std::string_view tag, const Tensor& image, std::int64_t step = 0,
                   std::string_view dataformats = {});
    // The run's hyperparameters, a map; nested ones become "outer/inner". They stand in the file of
    // the run itself, so that the HParams tab sets them beside the run's scalars.
    void add_hparams(const Tree& hparams);
    // That the run with these hyperparameters succeeded.
    void add_hparams_end();
    void flush();

  private:
    void add(std::int64_t step, std::string_view value);

    AppendFile file_;
    std::string pending_;
};

// "tensorboard": a SummaryWriter on <logging_dir>/<project_name>, flushed with every log(). Numbers
// become scalars, strings texts, tensors histograms, nested maps tags with slashes, tables texts
// with a Markdown table; lists are left out. The configuration goes to the HParams tab, and into
// hparams.yml. Options: purge_step and filename_suffix; max_queue and flush_secs, which change
// nothing. Without a step, it is 0.
class TensorBoardTracker : public Tracker {
  public:
    explicit TensorBoardTracker(const TrackerRun& run);
    // UsageError before the start and after the end.
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
