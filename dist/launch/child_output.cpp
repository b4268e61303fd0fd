#include "dist/launch/child_output.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/system/log.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

// The size of the queue in bytes above which no output is read.
constexpr std::size_t kMaxQueued = std::size_t{1} << 20;
// The number of bytes from which a line that has no line end yet is written in parts.
constexpr std::size_t kLongestLine = std::size_t{1} << 16;

OwnedFd open_log(const std::string& path) {
    constexpr mode_t kOwnerOnly = 0600;  // the output may contain secrets
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
    return adopt_fd(::open(path.c_str(), kFlags, kOwnerOnly), path);
}

bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

bool is_writable(int fd) {
    pollfd one = {fd, POLLOUT, 0};
    return ::poll(&one, 1, 0) > 0;
}

}  // namespace

std::array<OwnedFd, 2> ChildOutput::open(int rank, int local_rank) {
    static constexpr const char* kNames[] = {"stdout.log", "stderr.log"};
    std::array<OwnedFd, 2> ends;
    const std::string folder = str(folder_, "/", local_rank);
    if (!folder_.empty()) create_directories(folder);
    for (int i = 0; i < 2; ++i) {
        OwnedFd log;
        if (!folder_.empty()) log = open_log(str(folder, "/", kNames[i]));
        if ((tee_ & (1 << i)) == 0) {
            ends[static_cast<std::size_t>(i)] = std::move(log);
            continue;
        }
        FdPair pipe = make_pipe();
        ends[static_cast<std::size_t>(i)] = std::move(pipe.second);
        streams_.push_back({.pipe = std::move(pipe.first),
                            .log = std::move(log),
                            .shown_on = STDOUT_FILENO + i,
                            .prefix = str("[rank ", rank, "] "),
                            .line = {}});
    }
    return ends;
}

void ChildOutput::add_poll_entries(std::vector<pollfd>& waited) const {
    if (!pieces_.empty()) waited.push_back({pieces_.front().fd, POLLOUT, 0});
    if (queued_ > kMaxQueued) return;  // reads no more until the queue is shorter
    for (const Stream& stream : streams_)
        if (stream.pipe) waited.push_back({stream.pipe.get(), POLLIN, 0});
}

void ChildOutput::forward_output() {
    for (Stream& stream : streams_)
        if (queued_ <= kMaxQueued) read_some(stream);
    write_pieces(false);
}

void ChildOutput::finish() {
    for (Stream& stream : streams_) {
        while (read_some(stream)) write_pieces(queued_ > kMaxQueued);
        if (!stream.line.empty()) show_line(stream, std::exchange(stream.line, {}));
        stream.pipe.reset();
    }
    write_pieces(true);
}

void ChildOutput::append_fds(std::vector<int>& fds) const {
    for (const Stream& stream : streams_)
        for (const OwnedFd* fd : {&stream.pipe, &stream.log})
            if (*fd) fds.push_back(fd->get());
}

// Reads available data from a stream. Returns whether more data may be available.
bool ChildOutput::read_some(Stream& stream) {
    if (!stream.pipe) return false;
    std::string text(kLongestLine, '\0');
    const ssize_t size = ::read(stream.pipe.get(), text.data(), text.size());
    if (size < 0 && errno == EINTR) return true;
    if (size < 0 && errno == EAGAIN) return false;
    if (size <= 0) {
        stream.pipe.reset();
        return false;
    }
    text.resize(static_cast<std::size_t>(size));
    take(stream, text);
    return true;
}

void ChildOutput::take(Stream& stream, const std::string& text) {
    if (stream.log && !write_all(stream.log.get(), text)) {
        log(LogLevel::warning, "launch: ", stream.prefix,
            "the log is incomplete, because writing failed: ",
            std::generic_category().message(errno));
        stream.log.reset();
    }
    stream.line += text;
    std::size_t begin = 0;
    for (std::size_t end; (end = stream.line.find('\n', begin)) != std::string::npos;
         begin = end + 1)
        show_line(stream, stream.line.substr(begin, end - begin));
    stream.line.erase(0, begin);
    if (stream.line.size() >= kLongestLine) show_line(stream, std::exchange(stream.line, {}));
}

void ChildOutput::show_line(Stream& stream, std::string line) {
    line.insert(0, stream.prefix);
    line += '\n';
    queued_ += line.size();
    pieces_.push_back({stream.shown_on, std::move(line)});
}

// Writes the queued pieces. Unless `wait` is true, stops when the stream of the next piece is not
// writable. Each write has at most PIPE_BUF bytes, because a pipe that poll()
// reports as writable accepts this many bytes without blocking.
void ChildOutput::write_pieces(bool wait) {
    while (!pieces_.empty()) {
        Piece& piece = pieces_.front();
        if (!wait && !is_writable(piece.fd)) return;
        const std::size_t left = piece.text.size() - piece.written;
        const ssize_t written = ::write(piece.fd, piece.text.data() + piece.written,
                                        std::min<std::size_t>(left, PIPE_BUF));
        if (written < 0 && (errno == EINTR || errno == EAGAIN)) {
            if (errno == EAGAIN && wait) {
                pollfd one = {piece.fd, POLLOUT, 0};
                ::poll(&one, 1, -1);
            } else if (errno == EAGAIN) {
                return;
            }
            continue;
        }
        // After a write error, for example on a closed stream, the output is dropped.
        piece.written += written < 0 ? left : static_cast<std::size_t>(written);
        if (piece.written < piece.text.size()) continue;
        queued_ -= piece.text.size();
        pieces_.pop_front();
    }
}

}  // namespace axle::dist
