// Private to dist: the messages between a launcher and the processes that it starts.
//
// AXLE_LAUNCHER_FD is the descriptor of a Unix stream socket that a process inherits; each process
// has its own socket. Launcher and processes write lines of JSON, and ignore lines that they can't
// parse. The launcher reports the failure of a child to all processes that still run; the
// background thread of Control (control.h) reads this report. When a process receives the first
// failure of the job, it sends this failure to its launcher, unless the reason is that rank 0 has
// left. Writes do not block: the part of a line that does not fit into the socket's buffer is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace axle::dist {

inline constexpr const char* kLauncherVariable = "AXLE_LAUNCHER_FD";
inline constexpr std::size_t kMaxLauncherLine = 64 * 1024;  // bytes, including the line end

// A message of the launcher: {"rank": 1, "pid": 4242, "signal": 9, "exit_code": 0}. `signal` is the
// signal that ended the process, or 0. `exit_code` is 0 if a signal ended it.
struct ChildEnd {
    int rank = -1;
    std::int64_t pid = 0;
    int signal = 0, exit_code = 0;
};
// to_line() returns the message with a line end. The read functions return nullopt for a line that
// is not such a message.
std::string to_line(const ChildEnd& end);
std::optional<ChildEnd> read_child_end(std::string_view line);

// A message to the launcher: {"failure": "...", "rank": 0, "failed": 1, "op": "all_reduce", "seq":
// 12, "pid": 4242, "host": "a", "running": true}. The last three fields are optional.
struct ReportedFailure {
    std::string text;
    int rank = -1;    // the rank that reports
    int failed = -1;  // the rank that failed, or -1
    std::string op;   // the last collective of `failed` (of `rank` if `failed` is -1), or ""
    std::uint64_t sequence = 0;  // the number of this collective in its group
    std::int64_t pid = 0;        // the process of `failed`, or 0 if it is unknown
    std::string host = {};       // the host of `failed`, or "" if it is unknown
    bool is_running = false;     // whether `failed` has not ended, for example if it is frozen
};
// Truncates the text to kMaxLauncherLine / 8 bytes.
std::string to_line(const ReportedFailure& failure);
std::optional<ReportedFailure> read_reported_failure(std::string_view line);

// Splits a stream into lines. Drops an incomplete line when it has kMaxLauncherLine bytes.
class LineReader {
  public:
    void add(std::string_view bytes);
    // Returns the next complete line without its line end, or nullopt.
    std::optional<std::string> next();

  private:
    std::string pending_;
    bool dropping_ = false;  // whether the current line is too long
};

}  // namespace axle::dist
