// Private to dist: what children print, on its way into files and onto this process's own streams.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include <poll.h>

#include "dist/transport/owned_fd.h"

namespace axle::inline v0::dist {

// Each line of a child that is shown stays whole, with "[rank 1] " before it.
class ChildOutput {
  public:
    // `folder` is that of one attempt, empty without logs; `tee` as in SuperviseOptions.
    ChildOutput(std::string folder, int tee) : folder_(std::move(folder)), tee_(tee) {}

    // What becomes a child's stdout and stderr; none where it keeps this process's own. FileError
    // for a log that can't be written.
    std::array<OwnedFd, 2> open(int rank, int local_rank);

    // What to wait for, and then what to do about it. Neither waits.
    void add_to(std::vector<pollfd>& waited) const;
    void pass_on();
    // The rest of what has been printed. Waits until it is written.
    void finish();
    // What no child may hold.
    void list(std::vector<int>& fds) const;

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
    // One queue for both streams, so that lines stay whole where both are the same file.
    std::deque<Piece> pieces_;
    std::size_t queued_ = 0;
};

}  // namespace axle::inline v0::dist
