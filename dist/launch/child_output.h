// Private to dist: copies the output of children to log files and to the streams of this process.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include <poll.h>

#include "dist/transport/owned_fd.h"

namespace axle::dist {

// Copies the output of children. On the streams of this process, lines are not interleaved and have
// a prefix such as "[rank 1] ".
class ChildOutput {
  public:
    // `folder` is the log folder of this launch, or "" for no log files; SuperviseOptions documents
    // `tee`.
    ChildOutput(std::string folder, int tee) : folder_(std::move(folder)), tee_(tee) {}

    // Returns descriptors for the child's stdout and stderr. Each is empty if the child inherits
    // this stream of this process. Throws FileError if a log file or a pipe can't be created.
    std::array<OwnedFd, 2> open(int rank, int local_rank);

    // add_poll_entries() appends the descriptors to poll, and forward_output() copies the available
    // output. These functions do not block.
    void add_poll_entries(std::vector<pollfd>& waited) const;
    void forward_output();
    // Copies the remaining output and waits until it is written.
    void finish();
    // Appends the descriptors that children must not inherit.
    void append_fds(std::vector<int>& fds) const;

  private:
    struct Stream {
        OwnedFd pipe, log;
        int shown_on = -1;
        std::string prefix, line;
    };
    struct Piece {
        int fd;
        std::string text;
        std::size_t written = 0;
    };

    bool read_some(Stream& stream);
    void take(Stream& stream, const std::string& text);
    void show_line(Stream& stream, std::string line);
    void write_pieces(bool wait);

    std::string folder_;
    int tee_;
    std::vector<Stream> streams_;
    // The queue of output for stdout and stderr. It is shared, so that lines are not interleaved if
    // stdout and stderr are the same file.
    std::deque<Piece> pieces_;
    std::size_t queued_ = 0;
};

}  // namespace axle::dist
