#include "dist/transport/socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <system_error>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/files/file.h"
#include "dist/environment/environment.h"

namespace axle::dist {
namespace {

constexpr int kFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;

[[noreturn]] void fail(const char* what, const Address& address, int code) {
    throw SocketError(str("can't ", what, ' ', address.text()), code);
}

const sockaddr* raw(const Address& address) {
    return reinterpret_cast<const sockaddr*>(&address.storage);
}

Address make_address(const sockaddr* from, socklen_t length) {
    Address address;
    address.length = std::min<socklen_t>(length, sizeof address.storage);
    std::memcpy(&address.storage, from, address.length);
    return address;
}

void set_option(const Socket& socket, int level, int option) {
    const int on = 1;
    ::setsockopt(socket.descriptor(), level, option, &on, sizeof on);
}

Socket open_socket(const Address& address, int type) {
    Socket socket(::socket(address.storage.ss_family, type | kFlags, 0));
    if (socket.descriptor() < 0) fail("create a socket for", address, errno);
    return socket;
}

bool poll_for(const Socket& socket, short events, TimePoint deadline) {
    for (;;) {
        pollfd entry{socket.descriptor(), events, 0};
        const int found = ::poll(&entry, 1, milliseconds_until(deadline));
        if (found > 0) return true;
        if (found == 0 && Clock::now() >= deadline) return false;
        if (found < 0 && errno != EINTR) return true;  // the next system call reports the error
    }
}

}  // namespace

SocketError::SocketError(const std::string& text, int code_)
    : CommError(str(text, ": ", std::generic_category().message(code_))), code(code_) {}

Socket::~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

bool Address::is_loopback() const {
    if (storage.ss_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    }
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

std::string Address::host() const {
    std::array<char, NI_MAXHOST> host{};
    if (::getnameinfo(raw(*this), length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) !=
        0)
        return "?";
    return host.data();
}

std::string Address::text() const {
    if (storage.ss_family == AF_INET) return str(host(), ':', port_of(*this));
    return str('[', host(), "]:", port_of(*this));
}

Address with_port(Address address, int port) {
    const auto number = htons(static_cast<std::uint16_t>(port));
    if (address.storage.ss_family == AF_INET) {
        reinterpret_cast<sockaddr_in&>(address.storage).sin_port = number;
    } else {
        reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = number;
    }
    return address;
}

int port_of(const Address& address) {
    if (address.storage.ss_family == AF_INET)
        return ntohs(reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_port);
}

std::vector<Address> resolve(const std::string& host, int port, const std::string& prefix) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0)
        throw CommError(str(prefix, "can't find the address of ", in_quotes(host), ": ",
                            ::gai_strerror(error)));
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
    std::vector<Address> addresses;
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
        if (a->ai_family == AF_INET || a->ai_family == AF_INET6)
            addresses.push_back(with_port(make_address(a->ai_addr, a->ai_addrlen), port));
    }
    if (addresses.empty())
        throw CommError(str(prefix, "the host has no IPv4 or IPv6 address: ", in_quotes(host)));
    return addresses;
}

Address own_address(const Socket& socket) {
    sockaddr_storage here{};
    socklen_t length = sizeof here;
    ::getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&here), &length);
    return make_address(reinterpret_cast<const sockaddr*>(&here), length);
}

Address local_address_towards(const Address& there) {
    // connect() on a datagram socket sends no packets; it only selects the route.
    const Socket socket = open_socket(there, SOCK_DGRAM);
    if (::connect(socket.descriptor(), raw(there), there.length) != 0)
        fail("find a route to", there, errno);
    return with_port(own_address(socket), 0);
}

std::vector<Address> address_of_chosen_interface() {
    const char* variable = "AXLE_SOCKET_IFNAME";
    auto name = process_variable(variable);
    if (!name) name = process_variable(variable = "GLOO_SOCKET_IFNAME");
    if (!name) return {};
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0)
        throw SocketError(str("can't list the network interfaces to find ", variable), errno);
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, ::freeifaddrs);
    std::vector<Address> found;
    std::string names;  // the names of all interfaces, each followed by a comma
    for (const ifaddrs* a = all; a != nullptr; a = a->ifa_next) {
        const int family = a->ifa_addr == nullptr ? AF_UNSPEC : a->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        const std::string entry = str(' ', a->ifa_name, ',');
        if (names.find(entry) == std::string::npos) names += entry;
        if (a->ifa_name != *name) continue;
        const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        found.insert(family == AF_INET ? found.begin() : found.end(),
                     make_address(a->ifa_addr, length));
    }
    if (!found.empty()) return found;
    throw ValueError(str(variable, ": the network interface must be one of", names, " but is ",
                         in_quotes(*name)));
}

Socket listen_at(const Address& address) {
    Socket socket = open_socket(address, SOCK_STREAM);
    set_option(socket, SOL_SOCKET, SO_REUSEADDR);  // allows a port with connections in TIME_WAIT
    if (::bind(socket.descriptor(), raw(address), address.length) != 0 ||
        ::listen(socket.descriptor(), SOMAXCONN) != 0) {
        fail("listen at", address, errno);
    }
    return socket;
}

Socket connect_to(const Address& address, TimePoint deadline) {
    Socket socket = start_connect(address);
    if (!poll_for(socket, POLLOUT, deadline)) fail("connect to", address, ETIMEDOUT);
    finish_connect(socket, address);
    return socket;
}

Socket start_connect(const Address& address) {
    Socket socket = open_socket(address, SOCK_STREAM);
    set_option(socket, IPPROTO_TCP, TCP_NODELAY);
    if (::connect(socket.descriptor(), raw(address), address.length) != 0 && errno != EINPROGRESS)
        fail("connect to", address, errno);
    return socket;
}

void finish_connect(const Socket& socket, const Address& address) {
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) fail("connect to", address, error);
    // A connection to an unused ephemeral port can connect a socket to itself.
    if (own_address(socket).text() == address.text()) fail("connect to", address, ECONNREFUSED);
}

Socket accept_from(const Socket& listener) {
    Socket socket(::accept4(listener.descriptor(), nullptr, nullptr, kFlags));
    if (socket.descriptor() >= 0) set_option(socket, IPPROTO_TCP, TCP_NODELAY);
    return socket;
}

void send_all(const Socket& socket, std::string_view bytes, TimePoint deadline) {
    while (!bytes.empty()) {
        const auto sent = send_some(socket, bytes);
        if (sent < 0) throw SocketError("can't send data", errno);
        bytes.remove_prefix(static_cast<std::size_t>(sent));
        if (!bytes.empty() && !poll_for(socket, POLLOUT, deadline))
            throw SocketError("can't send data", ETIMEDOUT);
    }
}

std::ptrdiff_t send_some(const Socket& socket, std::string_view bytes) {
    for (;;) {
        const auto sent = ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0) return sent;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
        if (errno != EINTR) return -1;
    }
}

std::ptrdiff_t receive_some(const Socket& socket, std::span<char> into) {
    for (;;) {
        const auto received = ::recv(socket.descriptor(), into.data(), into.size(), 0);
        if (received > 0) return received;
        if (received == 0) return -1;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
        if (errno != EINTR) return -1;
    }
}

bool wait_readable(const Socket& socket, TimePoint deadline) {
    return poll_for(socket, POLLIN, deadline);
}

int milliseconds_until(TimePoint deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
}

Socket make_event() {
    Socket event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (event.descriptor() < 0) throw SocketError("can't create an event descriptor", errno);
    return event;
}

void signal_event(const Socket& event) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(event.descriptor(), &one, sizeof one);
}

std::string host_name() {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0) return "?";
    return printable(name.data());
}

}  // namespace axle::dist
