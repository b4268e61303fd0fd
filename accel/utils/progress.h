// A progress bar on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace axle::accel {

struct ProgressOptions {
    std::string title = {};       // "train"
    std::string unit = "step";    // 57.3 step/s
    std::int64_t start = 0;       // already done, as on resume
    double line_seconds = 10;     // between two lines where there is no terminal
    std::ostream* out = nullptr;  // for plain lines; null is stderr, with a bar if it is a terminal
    bool disable = false;         // nothing is shown or printed
    // Of several processes one of each machine shows it (accel/process/partial_state.h).
    bool main_process_only = true;
    // On a terminal: whether the bar stays when it is closed, and how many lines below the cursor
    // it is drawn, as one of an epoch (1) is below that of the run (0).
    bool leave = true;
    int line = 0;
};

// Counts to `total`, and shows how far, how fast and how long still:
//
//     train  42%|########            | 840/2000 [0:15<0:21, 55.8 step/s] loss 2.013  lr 8.1e-04
//
// Drawn at most ten times a second. Used by one thread.
class ProgressBar {
  public:
    explicit ProgressBar(std::int64_t total, ProgressOptions options = {});
    // close()
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    // `done` of total are done; `note` stands behind the numbers.
    void update(std::int64_t done, const std::string& note = {});
    // Prints a line without breaking the bar.
    void print(const std::string& line);
    // Ends the line of the bar, or takes it away.
    void close();

  private:
    using Clock = std::chrono::steady_clock;

    std::string status(bool with_bar) const;
    void draw();
    void draw_line(const std::string& text);
    std::ostream& stream() const;

    std::int64_t total_, done_;
    ProgressOptions options_;
    std::string note_;
    Clock::time_point started_, drawn_;
    bool terminal_ = false;
    bool closed_ = false;
    bool shown_ = false;      // the bar stands on the terminal's last line
    std::int64_t told_ = -1;  // what the last plain line said
};

}  // namespace axle::accel
