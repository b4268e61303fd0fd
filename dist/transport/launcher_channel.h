// Private to dist: what a launcher and a process that it has started say to each other.
//
// AXLE_LAUNCHER_FD is the number of an inherited socket (Unix, SOCK_STREAM), one for each process.
// Both sides write lines of JSON and ignore what they can't read. The launcher tells every process
// how a child of its ended in failure; Control (control.h) reads that in its thread, and tells the
// launcher the first failure of the job that it has heard of. Both write without waiting: a line
// that doesn't fit into the socket's buffer is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace axle::inline v0::dist {

inline constexpr const char* kLauncherVariable = "AXLE_LAUNCHER_FD";
inline constexpr std::size_t kMaxLauncherLine = 64 * 1024;  // with its end

// From the launcher: {"rank":1,"pid":4242,"signal":9,"exit_code":0}. `signal` is 0 for a process
// that exited by itself, `exit_code` 0 for one that was killed.
struct ChildEnd {
    int rank = -1;
    std::int64_t pid = 0;
    int signal = 0, exit_code = 0;
};
std::string to_line(const ChildEnd& end);
std::optional<ChildEnd> read_child_end(std::string_view line);

// To the launcher: {"failure":"...","rank":0,"failed":1,"op":"all_reduce","seq":12}.
struct HeardFailure {
    std::string text;
    int rank = -1;    // who says so
    int failed = -1;  // whom it is about, if it is about one process
    std::string op;   // the collective that `failed` (else `rank`) was in; "" if that isn't known
    std::uint64_t sequence = 0;
};
std::string to_line(const HeardFailure& failure);
std::optional<HeardFailure> read_heard_failure(std::string_view line);

// The lines of a stream, as they come. What is longer than kMaxLauncherLine is dropped.
class LineReader {
  public:
    void add(std::string_view bytes);
    // The next whole line without its end, or nothing yet.
    std::optional<std::string> next();

  private:
    std::string pending_;
    bool dropping_ = false;  // until the end of a line that is too long
};

}  // namespace axle::inline v0::dist
