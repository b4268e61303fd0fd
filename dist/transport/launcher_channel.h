// Private to dist: the messages between a launcher and the processes that it starts.
//
// AXLE_LAUNCHER_FD is the number of an inherited Unix stream socket, one for each process. Both
// sides write lines of JSON and ignore lines that they cannot parse. The launcher reports to every
// process how one of its children failed; the thread of Control (control.h) reads this. Each
// process reports to its launcher the first failure of the job that it receives. Neither side
// blocks: a line that does not fit into the socket's buffer is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace axle::dist {

inline constexpr const char* kLauncherVariable = "AXLE_LAUNCHER_FD";
inline constexpr std::size_t kMaxLauncherLine = 64 * 1024;  // including the line end

// Sent by the launcher: {"rank":1,"pid":4242,"signal":9,"exit_code":0}. `signal` is 0 if the
// process exited by itself; `exit_code` is 0 if a signal ended it.
struct ChildEnd {
    int rank = -1;
    std::int64_t pid = 0;
    int signal = 0, exit_code = 0;
};
std::string to_line(const ChildEnd& end);
std::optional<ChildEnd> read_child_end(std::string_view line);

// Sent to the launcher: {"failure":"...","rank":0,"failed":1,"op":"all_reduce","seq":12}.
struct ReportedFailure {
    std::string text;
    int rank = -1;    // the rank that reports
    int failed = -1;  // the rank that failed, or -1
    std::string op;   // the collective that `failed` (or else `rank`) was in, or ""
    std::uint64_t sequence = 0;
};
std::string to_line(const ReportedFailure& failure);
std::optional<ReportedFailure> read_reported_failure(std::string_view line);

// Splits a stream into lines. Lines longer than kMaxLauncherLine are dropped.
class LineReader {
  public:
    void add(std::string_view bytes);
    // Returns the next complete line without its line end, or nullopt.
    std::optional<std::string> next();

  private:
    std::string pending_;
    bool dropping_ = false;  // until the end of a line that is too long
};

}  // namespace axle::dist
