// Private to dist: an owner of a file descriptor, and functions that create descriptors.
#pragma once

#include <string>
#include <utility>

namespace axle::dist {

class OwnedFd {
  public:
    OwnedFd() = default;
    explicit OwnedFd(int fd) : fd_(fd) {}
    ~OwnedFd() { reset(); }
    OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    OwnedFd& operator=(OwnedFd&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    void reset();
    int release() { return std::exchange(fd_, -1); }

  private:
    int fd_ = -1;
};

// A pair of descriptors. Descriptors from make_pipe() and make_socket_pair() are close-on-exec.
// They never have the numbers of the standard streams, even if the standard streams are closed.
// Both functions throw FileError if the system can't create descriptors.
struct FdPair {
    OwnedFd first, second;
};
FdPair make_pipe();         // `first` is the read end, which is non-blocking
FdPair make_socket_pair();  // `first` is non-blocking
// Takes ownership of `fd`. Duplicates it if it has the number of a standard stream. Throws
// FileError with `path` and the text of errno if `fd` is negative or cannot be duplicated.
OwnedFd adopt_fd(int fd, const std::string& path);

}  // namespace axle::dist
