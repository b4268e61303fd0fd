// A progress bar on terminals, and plain lines elsewhere.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace axle::accel {

struct ProgressOptions {
    std::string title = {};     // text before the bar, such as "train"
    std::string unit = "step";  // the unit of the rate, as in "57.3 step/s"
    std::int64_t start = 0;     // steps that were done before a run was resumed
    double line_seconds = 10;   // minimum number of seconds between plain lines
    // The stream for plain lines. If nullptr, stderr is used: for a bar if it is a terminal,
    // otherwise for plain lines.
    std::ostream* out = nullptr;
    bool disable = false;  // if true, nothing is shown
    // Whether only the main process of each machine shows progress (accel/process/partial_state.h).
    bool main_process_only = true;
    // Options of the bar on a terminal: whether the bar stays after close(), and its line below the
    // cursor. For example, the bar of a run is on line 0 and the bar of an epoch on line 1.
    bool leave = true;
    int line = 0;
};

// A progress bar up to `total` with the rate and the remaining time:
//
//     train  42%|########            | 840/2000 [0:15<0:21, 55.8 step/s] loss 2.013  lr 8.1e-04
//
// Before `total` is reached, the bar is redrawn at most ten times per second. Used by one thread.
class ProgressBar {
  public:
    explicit ProgressBar(std::int64_t total, ProgressOptions options = {});
    // Calls close().
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    // Sets the number of steps that are done, and a note that is shown after the numbers.
    void update(std::int64_t done, const std::string& note = {});
    // Prints a line above the bar. Does nothing if progress is not shown
    // (ProgressOptions::disable).
    void print(const std::string& line);
    // Ends the bar's line, or removes the bar (ProgressOptions::leave). Without a terminal, prints
    // a line if steps were done since the last one. Further calls do nothing.
    void close();

  private:
    std::string status(bool with_bar) const;
    void draw();
    void draw_line(const std::string& text);
    std::ostream& stream() const;

    std::int64_t total_, done_;
    ProgressOptions options_;
    std::string note_;
    double started_, drawn_;  // in seconds of a steady clock
    bool terminal_ = false;
    bool closed_ = false;
    bool shown_ = false;         // whether the bar is on the terminal
    std::int64_t printed_ = -1;  // number of steps in the last plain line
};

}  // namespace axle::accel
