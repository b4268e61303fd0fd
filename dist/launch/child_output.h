// Private to dist: copies what children print to log files and to this process's own streams.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include <poll.h>

#include "dist/transport/owned_fd.h"

namespace axle::dist {

// Copies the output of children. Lines that it shows are never interleaved and are prefixed with
// "[rank 1] ".
class ChildOutput {
  public:
    // `folder` is the log folder of this launch, or "" for no logs; `tee` is as in
    // SuperviseOptions.
    ChildOutput(std::string folder, int tee) : folder_(std::move(folder)), tee_(tee) {}

    // Returns the child's stdout and stderr, which are empty if it inherits this process's. Throws
    // FileError if a log cannot be created.
    std::array<OwnedFd, 2> open(int rank, int local_rank);

    // add_poll_entries() adds the descriptors to poll; forward_output() copies the available
    // output. Neither blocks.
    void add_poll_entries(std::vector<pollfd>& waited) const;
    void forward_output();
    // Copies the remaining output; blocks until it is written.
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
    // One queue for stdout and stderr, so that lines stay whole if both are the same file.
    std::deque<Piece> pieces_;
    std::size_t queued_ = 0;
};

}  // namespace axle::dist
