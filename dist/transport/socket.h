// Private to dist: TCP sockets with deadlines. All descriptors are non-blocking and close-on-exec.
// Nothing here raises SIGPIPE.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "kernels/error.h"

namespace axle::dist {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

// A failed system call with its errno, or ETIMEDOUT after a deadline.
struct SocketError : CommError {
    SocketError(const std::string& text, int code_);
    int code;
};

// Owns a descriptor.
class Socket {
  public:
    Socket() = default;
    explicit Socket(int descriptor) : descriptor_(descriptor) {}
    ~Socket();
    Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }

    int descriptor() const { return descriptor_; }

  private:
    int descriptor_ = -1;
};

// An IPv4 or IPv6 address with a port.
struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;

    bool is_loopback() const;
    std::string host() const;  // numeric
    std::string text() const;  // numeric, with the port
};

// Resolves a host name; the preferred address comes first. Throws CommError.
std::vector<Address> resolve(const std::string& host, int port);
Address with_port(Address address, int port);
// Returns the local address of the route to `there`, without a port.
Address local_address_towards(const Address& there);
// Returns the address of the interface named by AXLE_SOCKET_IFNAME or GLOO_SOCKET_IFNAME, or an
// empty list if neither is set. Throws ValueError if the interface does not exist.
std::vector<Address> address_of_chosen_interface();

Socket listen_at(const Address& address);
Socket connect_to(const Address& address, TimePoint deadline);
// Returns the next pending connection, or an empty Socket.
Socket accept_from(const Socket& listener);

void send_all(const Socket& socket, std::string_view bytes, TimePoint deadline);
// Returns the number of bytes sent without waiting, or -1 if the connection is closed.
std::ptrdiff_t send_some(const Socket& socket, std::string_view bytes);
// Returns the number of bytes received, 0 if there are none yet, or -1 if the connection is closed.
std::ptrdiff_t receive_some(const Socket& socket, std::span<char> into);
// Waits for data; returns false at the deadline.
bool wait_readable(const Socket& socket, TimePoint deadline);

// Returns the time until the deadline for poll(): rounded up, at most one hour.
int milliseconds_until(TimePoint deadline);

// Creates an event descriptor that wakes polling threads. It stays readable once signalled.
Socket make_event();
void signal_event(const Socket& event);

std::string host_name();

}  // namespace axle::dist
