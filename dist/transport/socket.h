// Private to dist: TCP with deadlines. All descriptors are non-blocking and closed by exec; nothing
// here raises SIGPIPE.
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

namespace axle::inline v0::dist {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

// A call of the system that failed, with its errno; ETIMEDOUT past the deadline.
struct SocketError : CommError {
    SocketError(const std::string& text, int code_);
    int code;
};

// A descriptor of one's own.
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

// IPv4 or IPv6, with a port.
struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;

    bool is_loopback() const;
    std::string host() const;  // in numbers
    std::string text() const;  // with the port
};

// What a name means, best first. CommError.
std::vector<Address> resolve(const std::string& host, int port);
Address with_port(Address address, int port);
// Of this machine, on the way to `there`; without a port.
Address local_address_towards(const Address& there);
// Of the interface that AXLE_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names, if one does; ValueError if
// there is no such interface.
std::vector<Address> address_of_chosen_interface();

Socket listen_at(const Address& address);
Socket connect_to(const Address& address, TimePoint deadline);
// The next connection that waits, or an empty Socket.
Socket accept_from(const Socket& listener);

void send_all(const Socket& socket, std::string_view bytes, TimePoint deadline);
// Bytes sent now, which may be none; -1 where the connection is gone.
std::ptrdiff_t send_some(const Socket& socket, std::string_view bytes);
// Bytes that were there, 0 for none yet, -1 where the connection has ended.
std::ptrdiff_t receive_some(const Socket& socket, std::span<char> into);
// Whether there is something to read before the deadline.
bool wait_readable(const Socket& socket, TimePoint deadline);

// What is left until then, for poll() and its like: rounded up, and at most an hour.
int milliseconds_until(TimePoint deadline);

// What wakes a thread that polls; stays readable once signalled.
Socket make_event();
void signal_event(const Socket& event);

// This machine's name.
std::string host_name();

}  // namespace axle::inline v0::dist
