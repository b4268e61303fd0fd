// Private to dist: a file descriptor with an owner, and the ways in which a launcher makes them.
#pragma once

#include <string>
#include <utility>

namespace axle::inline v0::dist {

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

// All are closed by exec, and none takes the number of a standard stream, even where this process
// has closed those. Error says that the system has no more.
struct FdPair {
    OwnedFd first, second;
};
FdPair make_pipe();         // first reads, and never waits
FdPair make_socket_pair();  // first never waits
// `path` names what is opened in messages.
OwnedFd adopt_fd(int fd, const std::string& path);

}  // namespace axle::inline v0::dist
