#include "accel/utils/progress.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

#include "accel/process/partial_state.h"
#include "accel/utils/text.h"
#include "core/text/text.h"

namespace axle::accel {
namespace {

constexpr double kFrameSeconds = 0.1;

int terminal_width() {
    winsize size = {};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

double now_in_seconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
}

}  // namespace

ProgressBar::ProgressBar(std::int64_t total, ProgressOptions options)
    : total_(std::max<std::int64_t>(total, 0)),
      done_(options.start),
      options_(std::move(options)),
      started_(now_in_seconds()),
      drawn_(started_ - 1),
      terminal_(options_.out == nullptr && isatty(STDERR_FILENO) == 1) {
    const auto state = PartialState::current();
    if (options_.main_process_only && state && !state->is_local_main_process())
        options_.disable = true;
}

ProgressBar::~ProgressBar() { close(); }

std::ostream& ProgressBar::stream() const {
    return options_.out != nullptr ? *options_.out : std::cerr;
}

std::string ProgressBar::status(bool with_bar) const {
    const double elapsed = now_in_seconds() - started_;
    const auto made = static_cast<double>(done_ - options_.start);
    const double rate = elapsed > 0 ? made / elapsed : 0;
    const double share =
        total_ > 0 ? static_cast<double>(done_) / static_cast<double>(total_) : 1.0;
    const std::string left =
        rate > 0 ? human_duration(static_cast<double>(total_ - done_) / rate) : "?";

    const auto fixed = [](double value, int precision) {
        return format_number(value, std::chars_format::fixed, precision);
    };
    const std::string percent = fixed(100 * std::clamp(share, 0.0, 1.0), 0);
    const std::string speed = fixed(rate, rate < 10 ? 2 : 1);

    std::string text = options_.title.empty() ? "" : options_.title + " ";
    text += std::string(3 - percent.size(), ' ') + percent + '%';
    if (with_bar) {
        constexpr int kCells = 20;
        const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * kCells);
        text += "|" + std::string(full, '#') + std::string(kCells - full, ' ') + "|";
    }
    text += " " + std::to_string(done_) + "/" + std::to_string(total_) + " [" +
            human_duration(elapsed) + "<" + left + ", " + speed + " " + options_.unit + "/s]";
    if (!note_.empty()) text += " " + note_;
    return text;
}

void ProgressBar::draw() {
    drawn_ = now_in_seconds();
    if (!terminal_) {
        printed_ = done_;
        stream() << status(false) << '\n' << std::flush;
        return;
    }
    std::string line = status(true);
    line.resize(std::min<std::size_t>(line.size(), static_cast<std::size_t>(terminal_width()) - 1));
    draw_line(line);
    shown_ = true;
}

// Draws the bar: moves the cursor down to its line and up again, as tqdm does.
void ProgressBar::draw_line(const std::string& text) {
    const std::string down(static_cast<std::size_t>(std::max(options_.line, 0)), '\n');
    stream() << down << "\r\x1b[K" << text;
    for (std::size_t i = 0; i < down.size(); ++i) stream() << "\x1b[A";
    stream() << std::flush;
}

void ProgressBar::update(std::int64_t done, const std::string& note) {
    done_ = done;
    note_ = note;
    if (options_.disable) return;
    const double pause = terminal_ ? kFrameSeconds : options_.line_seconds;
    if (done_ >= total_ || now_in_seconds() - drawn_ >= pause) draw();
}

void ProgressBar::print(const std::string& line) {
    if (options_.disable) return;
    if (shown_ && options_.line > 0) draw_line("");
    if (terminal_) stream() << "\r\x1b[K";
    stream() << line << '\n' << std::flush;
    shown_ = false;
}

void ProgressBar::close() {
    if (std::exchange(closed_, true) || options_.disable) return;
    if (terminal_ ? shown_ && options_.leave : printed_ != done_ && done_ > options_.start) draw();
    if (!shown_) return;
    if (!options_.leave)
        draw_line("");
    else if (options_.line == 0)
        stream() << '\n' << std::flush;
}

}  // namespace axle::accel
