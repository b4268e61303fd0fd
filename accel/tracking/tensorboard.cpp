#include "accel/tracking/tensorboard.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>

#include <unistd.h>

#include "accel/tracking/event.h"
#include "accel/tracking/tfrecord.h"
#include "core/files/file.h"
#include "core/system/log.h"

namespace axle::accel {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr std::size_t kMaxPending = 1 << 20;

double now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

std::string host_name() {
    std::array<char, 256> name = {};
    if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
    std::replace(name.begin(), name.end(), '/', '_');
    return name.data();
}

// Returns the time for the name of the next file. TensorBoard reads the files of a folder in the
// order of their names. Therefore the time must be later than the times of all existing files, even
// if two files are created in one second or the clock was set back. Times that leave no later time
// of ten digits are ignored.
std::int64_t next_time(const std::string& folder) {
    auto time = static_cast<std::int64_t>(now());
    std::error_code unreadable;  // ignored: the time is only one part of the name
    for (std::filesystem::directory_iterator entry(folder, unreadable), end;
         !unreadable && entry != end; entry.increment(unreadable)) {
        const std::string name = entry->path().filename().string();
        if (name.rfind(kPrefix, 0) != 0) continue;
        std::int64_t other = 0;
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), other);
        if (other < 9'999'999'999) time = std::max(time, other + 1);
    }
    return time;
}

std::string new_path(const std::string& folder, const std::string& suffix) {
    static constinit std::atomic<std::int64_t> count = 0;
    create_directories(folder);
    std::string time = std::to_string(next_time(folder));
    time.insert(0, time.size() < 10 ? 10 - time.size() : 0, '0');
    return str(folder, '/', kPrefix, time, '.', host_name(), '.', ::getpid(), '.', count++, suffix);
}

std::string cell(const Tree& value) {
    std::string text = value.is_string() ? value.string() : str(value);
    std::replace(text.begin(), text.end(), '\n', ' ');
    for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
        text.insert(at, 1, '\\');
    return text;
}

std::string markdown(const std::vector<std::string>& columns, const Tree& rows) {
    std::string names = "|", line = "|";
    for (const std::string& column : columns) names += " " + cell(column) + " |", line += "---|";
    std::string table = names + '\n' + line + '\n';
    for (const Tree& row : rows.elements()) {
        table += "|";
        for (const Tree& value : row.elements()) table += " " + cell(value) + " |";
        table += '\n';
    }
    return table;
}

// Formats a value for YAML 1.1: a number with an exponent needs a decimal point, and infinities and
// NaN have their own names. Strings are quoted as in JSON.
std::string yaml(const Tree& value) {
    if (value.is_tensor()) return to_json(str(value), -1);
    if (!value.is_number() || std::isfinite(value.number())) {
        std::string text = to_json(value, -1);
        const std::size_t exponent = value.is_number() ? text.find('e') : std::string::npos;
        if (exponent < text.find('.')) text.insert(exponent, ".0");
        return text;
    }
    if (std::isnan(value.number())) return ".nan";
    return value.number() > 0 ? ".inf" : "-.inf";
}

}  // namespace

SummaryWriter::SummaryWriter(const std::string& log_dir, SummaryWriterOptions options)
    : file_(new_path(log_dir, options.filename_suffix)) {
    append_record(pending_, version_event(now()));
    if (options.purge_step) purge(*options.purge_step);
    flush();
}

// Two start events are written, because TensorBoard ignores earlier events only after a start event
// that is not the run's first one.
void SummaryWriter::purge(std::int64_t step) {
    for (int i = 0; i < 2; ++i) append_record(pending_, start_event(now(), step));
}

SummaryWriter::~SummaryWriter() {
    try {
        flush();
    } catch (...) {
        report_error_noexcept(std::current_exception());
    }
}

void SummaryWriter::add(std::int64_t step, std::string_view value) {
    append_record(pending_, summary_event(now(), step, value));
    if (pending_.size() > kMaxPending) flush();
}

void SummaryWriter::flush() {
    const std::string pending = std::exchange(pending_, {});
    file_.append(pending);
}

void SummaryWriter::add_scalar(std::string_view tag, double value, std::int64_t step) {
    add(step, scalar_value(tag, value));
}

void SummaryWriter::add_text(std::string_view tag, std::string_view text, std::int64_t step) {
    add(step, text_value(tag, text));
}

void SummaryWriter::add_histogram(std::string_view tag, const Tensor& values, std::int64_t step) {
    const Histogram histogram = make_histogram(values.to_vector());
    if (histogram.num > 0) add(step, histogram_value(tag, histogram));
}

void SummaryWriter::add_image(std::string_view tag, const Tensor& image, std::int64_t step,
                              std::string_view dataformats) {
    add(step, image_value(tag, to_image(image, dataformats)));
}

void SummaryWriter::add_hparams(const Tree& hparams) { add(0, hparams_value(hparams, now())); }

void SummaryWriter::add_hparams_end() { add(0, hparams_end_value(now())); }

TensorBoardTracker::TensorBoardTracker(const TrackerRun& run) : folder_(run.folder()) {
    check_options("tensorboard", run.options,
                  {"purge_step", "filename_suffix", "max_queue", "flush_secs"});
    options_.purge_step = purge_step("tensorboard", run.options);
    if (!run.options.is_null() && run.options.contains("filename_suffix"))
        options_.filename_suffix = run.options["filename_suffix"].string();
}

SummaryWriter& TensorBoardTracker::writer() {
    if (!writer_)
        throw UsageError("tensorboard: the writer was used before start() or after finish()");
    return *writer_;
}

void TensorBoardTracker::start() { writer_.emplace(folder_, options_); }

void TensorBoardTracker::resume(std::optional<std::int64_t> purge_step) {
    if (purge_step && !options_.purge_step) writer().purge(*purge_step);
}

void TensorBoardTracker::store_init_configuration(const Tree& config) {
    writer().add_hparams(config);
    writer().flush();
    has_hparams_ = true;
    std::string text;
    for (const auto& [key, value] : flattened(config))
        text += to_json(key, -1) + ": " + yaml(value) + '\n';
    write_file_atomically(folder_ + "/hparams.yml", text);
}

void TensorBoardTracker::log(const Tree& values, std::optional<std::int64_t> step, const Tree&) {
    SummaryWriter& out = writer();
    const std::int64_t at = step.value_or(0);
    for (const auto& [tag, value] : flattened(values)) {
        if (value.is_number()) out.add_scalar(tag, value.number(), at);
        if (value.is_boolean()) out.add_scalar(tag, value.boolean() ? 1 : 0, at);
        if (value.is_string()) out.add_text(tag, value.string(), at);
        if (value.is_tensor()) out.add_histogram(tag, value.tensor(), at);
    }
    out.flush();
}

void TensorBoardTracker::log_images(const Tree& images, std::optional<std::int64_t> step,
                                    const Tree& options) {
    check_options("tensorboard", options, {"dataformats"});
    const Tree* named = options.is_null() ? nullptr : options.find("dataformats");
    const std::string formats = named == nullptr ? "" : named->string();
    for (const auto& [tag, image] : images.entries()) {
        if (image.is_tensor()) {
            writer().add_image(tag, image.tensor(), step.value_or(0), formats);
            continue;
        }
        for (std::size_t i = 0; i < image.size(); ++i)
            writer().add_image(str(tag, '/', i), image[i].tensor(), step.value_or(0), formats);
    }
    writer().flush();
}

void TensorBoardTracker::log_table(const std::string& table,
                                   const std::vector<std::string>& columns, const Tree& rows,
                                   std::optional<std::int64_t> step, const Tree&) {
    writer().add_text(table, markdown(columns, rows), step.value_or(0));
    writer().flush();
}

void TensorBoardTracker::finish() {
    if (has_hparams_) writer().add_hparams_end();
    writer().flush();
    writer_.reset();
}

}  // namespace axle::accel
