#include "dist/transport/owned_fd.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

[[noreturn]] void fail_on(const std::string& what, int error) {
    throw FileError(
        str("launch: can't open ", printable(what), ": ", std::generic_category().message(error)));
}

OwnedFd without_waiting(OwnedFd fd) {
    const int flags = ::fcntl(fd.get(), F_GETFL);
    if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) fail_on("pipe", errno);
    return fd;
}

}  // namespace

void OwnedFd::reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
}

OwnedFd adopt_fd(int fd, const std::string& path) {
    if (fd < 0) fail_on(path, errno);
    OwnedFd owned(fd);
    if (fd > STDERR_FILENO) return owned;
    const int above = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (above < 0) fail_on(path, errno);
    return OwnedFd(above);
}

FdPair make_pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail_on("pipe", errno);
    OwnedFd first = adopt_fd(ends[0], "pipe"), second = adopt_fd(ends[1], "pipe");
    return {without_waiting(std::move(first)), std::move(second)};
}

FdPair make_socket_pair() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        fail_on("socketpair", errno);
    OwnedFd first = adopt_fd(ends[0], "socketpair"), second = adopt_fd(ends[1], "socketpair");
    return {without_waiting(std::move(first)), std::move(second)};
}

}  // namespace axle::dist
