// Private to dist: TCP sockets with deadlines. All descriptors are non-blocking and close-on-exec.
// No function raises SIGPIPE.
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

// An error of a system call, with its errno. ETIMEDOUT means that a deadline has passed.
struct SocketError : CommError {
    SocketError(const std::string& text, int code_);
    int code;
};

// A socket, which owns its descriptor.
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
    std::string host() const;  // the numeric address
    std::string text() const;  // the numeric address and the port
};

// Returns the addresses of a host, beginning with the preferred one. Throws CommError, whose
// message begins with `prefix`, if the name can't be resolved.
std::vector<Address> resolve(const std::string& host, int port, const std::string& prefix = {});
Address with_port(Address address, int port);
int port_of(const Address& address);
// Returns the local address of a socket.
Address own_address(const Socket& socket);
// Returns the local address, with port 0, that the system uses for connections to `there`. Throws
// SocketError if there is no route.
Address local_address_towards(const Address& there);
// Returns the addresses, IPv4 first, of the network interface in AXLE_SOCKET_IFNAME or else
// GLOO_SOCKET_IFNAME. Returns an empty list if neither is set. Throws ValueError if the interface
// does not exist or has no IPv4 or IPv6 address, and SocketError if the interfaces can't be listed.
std::vector<Address> address_of_chosen_interface();

// Returns a socket that listens at an address. Throws SocketError, for example with EADDRINUSE.
Socket listen_at(const Address& address);
// Returns a connection to an address. Throws SocketError; its code is ETIMEDOUT after the deadline.
Socket connect_to(const Address& address, TimePoint deadline);
// The two steps of connect_to(). start_connect() does not wait. When the socket is writable, the
// connection is established or has failed, and finish_connect() must be called. Both functions
// throw SocketError if the connection has failed.
Socket start_connect(const Address& address);
void finish_connect(const Socket& socket, const Address& address);
// Returns the next pending connection. Returns an empty Socket and sets errno if no connection is
// pending (EAGAIN) or on an error.
Socket accept_from(const Socket& listener);

// Sends all bytes. Throws SocketError; its code is ETIMEDOUT after the deadline.
void send_all(const Socket& socket, std::string_view bytes, TimePoint deadline);
// Sends as many bytes as possible without waiting. Returns their number, or -1 if the connection is
// closed or has failed.
std::ptrdiff_t send_some(const Socket& socket, std::string_view bytes);
// Receives bytes without waiting. Returns their number, 0 if none have arrived, or -1 if the
// connection is closed or has failed.
std::ptrdiff_t receive_some(const Socket& socket, std::span<char> into);
// Waits until data, the end of the connection or an error can be read. Returns false after the
// deadline.
bool wait_readable(const Socket& socket, TimePoint deadline);

// Returns the milliseconds until the deadline, rounded up and at most one hour, as a timeout for
// poll().
int milliseconds_until(TimePoint deadline);

// make_event() returns an event descriptor, or throws SocketError. signal_event() makes the
// descriptor readable, which wakes threads that poll it. The descriptor stays readable.
Socket make_event();
void signal_event(const Socket& event);

// Returns the host name of this machine, or "?" if the system does not provide it.
std::string host_name();

}  // namespace axle::dist
