#include "dist/rendezvous/server.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <span>

#include <sys/epoll.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/system/log.h"
#include "kernels/error.h"
#include "kernels/thread.h"

namespace axle::dist {
namespace {

// The number of bytes of unsent output to a client above which the server does not read from the
// client.
constexpr std::size_t kMaxBacklog = 32 << 20;
constexpr std::chrono::milliseconds kLinger{2000}, kLingerAfterFailure{300};
// The maximum number of bytes that one call reads before authentication. It exceeds the size of
// each message of a handshake.
constexpr std::size_t kUnauthenticatedRead = 512;

bool all_loopback(const std::vector<Address>& addresses) {
    return std::ranges::all_of(addresses, [](const Address& a) { return a.is_loopback(); });
}

Socket listen_for(const Environment& environment, Address& address) {
    std::string tried;
    for (const int port : ports_of(environment)) {
        for (const Address& candidate : addresses_of_master("join: MASTER_ADDR: ", environment)) {
            address = with_port(candidate, port);
            try {
                return listen_at(address);
            } catch (const SocketError& error) {
                tried += str(tried.empty() ? "" : "; ", error.what());
                if (error.code == EADDRINUSE) break;
            }
        }
    }
    throw CommError(str("join: rank 0 cannot listen at ", in_quotes(environment.master_addr), ": ",
                        tried,
                        ": MASTER_ADDR must be an address of rank 0's machine, and MASTER_PORT "
                        "must be a free port"));
}

std::chrono::milliseconds interval_of(const ControlOptions& options) {
    return std::clamp<std::chrono::milliseconds>(
        options.heartbeat_timeout / 4, std::chrono::milliseconds(1), std::chrono::seconds(1));
}

}  // namespace

std::vector<Address> addresses_of_master(const char* prefix, const Environment& e) {
    auto addresses = resolve(e.master_addr, 0, prefix);
    const bool meant = e.master_addr == "localhost" || e.master_addr == addresses.front().host();
    if (meant || e.local_world_size == e.world_size || !all_loopback(addresses)) return addresses;
    if (auto chosen = address_of_chosen_interface(); !chosen.empty()) return chosen;
    // The route to 192.0.2.1 is the default route, because this address is reserved for
    // documentation (RFC 5737).
    return {local_address_towards(resolve("192.0.2.1", 1).front())};
}

Server::Server(const Environment& environment, const ControlOptions& options)
    : environment_(environment),
      options_(options),
      interval_(interval_of(options)),
      key_(key_of(environment)),
      self_{0, ::getpid(), host_name()},
      listener_(listen_for(environment, address_)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      leave_event_(make_event()),
      max_unauthenticated_(max_unauthenticated() +
                           static_cast<std::size_t>(environment.world_size)),
      random_(std::random_device{}()),
      scratch_(kReceiveBytes),
      members_(static_cast<std::size_t>(environment.world_size)),
      ends_(members_.size()),
      agreements_(environment.world_size),
      now_(Clock::now()),
      next_timer_(now_),
      next_heartbeat_(now_ + interval_),
      join_deadline_(now_ + options.join_timeout),
      linger_deadline_(TimePoint::max()) {
    if (epoll_.descriptor() < 0) throw SocketError("rendezvous: epoll failed on rank 0", errno);
    if (!address_.is_loopback() && !environment.token_is_secret) {
        log(LogLevel::warning, "join: rank 0 listens at ", address_.text(),
            " for other machines without a secret token, so any process that reaches it can join "
            "the job: set AXLE_JOB_TOKEN to the same secret for all processes");
    }
    for (const Socket* socket : {&listener_, &leave_event_}) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.fd = socket->descriptor();
        ::epoll_ctl(epoll_.descriptor(), EPOLL_CTL_ADD, socket->descriptor(), &event);
    }
    thread_ = kernels::start_thread("axle server", [this] { run(); });
}

Server::~Server() {
    signal_event(leave_event_);
    thread_.join();
}

void Server::run() noexcept {
    try {
        loop();
        end();
    } catch (const std::exception& error) {
        log(LogLevel::error, "rendezvous: the server on rank 0 stopped: ", error.what());
    }
    connections_.clear();
}

void Server::loop() {
    std::array<epoll_event, 1024> events{};
    while (!is_over()) {
        const int count = ::epoll_wait(epoll_.descriptor(), events.data(), events.size(),
                                       milliseconds_until(next_timer_));
        if (count < 0 && errno != EINTR)
            throw SocketError("rendezvous: epoll failed on rank 0", errno);
        now_ = Clock::now();
        if (now_ - next_timer_ > options_.heartbeat_timeout / 4) reset_silence_timers();
        for (int i = 0; i < count; ++i)
            handle(events[static_cast<std::size_t>(i)].data.fd,
                   events[static_cast<std::size_t>(i)].events);
        if (now_ >= next_timer_) on_timer();
    }
}

bool Server::is_over() { return leaving_ && (present_ == 0 || now_ >= linger_deadline_); }

void Server::handle(int descriptor, std::uint32_t events) {
    if (descriptor == listener_.descriptor()) return accept_some();
    if (descriptor == leave_event_.descriptor()) {
        if (leaving_) return;
        leaving_ = true;
        linger_deadline_ = now_ + (failed_ ? kLingerAfterFailure : kLinger);
        wake_at(linger_deadline_);
        ::epoll_ctl(epoll_.descriptor(), EPOLL_CTL_DEL, descriptor, nullptr);
        listener_ = Socket();
        return;
    }
    const auto found = connections_.find(descriptor);
    if (found == connections_.end()) return;  // an earlier event has closed the connection
    Connection& connection = *found->second;
    if ((events & EPOLLOUT) != 0) write(connection);
    if ((events & ~EPOLLOUT) != 0) read(connection);
}

void Server::read(Connection& connection) {
    const std::span<char> all = scratch_;
    const auto count = receive_some(
        connection.socket, connection.place == kNoPlace ? all : all.first(kUnauthenticatedRead));
    if (count < 0) return on_disconnect(connection);
    if (count == 0) return;
    connection.last_received = now_;
    if (connection.ignored) return;
    connection.in.add({scratch_.data(), static_cast<std::size_t>(count)});
    try {
        for (;;) {
            const auto frame =
                connection.in.next(connection.rank < 0 ? Sender::unauthenticated : Sender::member);
            if (!frame || !serve(connection, *frame)) return;
        }
    } catch (const CommError& error) {
        if (connection.rank < 0) return drop(connection);
        connection.ignored = true;
        fail(error.what(), connection.rank);
    }
}

void Server::send_frame(Connection& connection, std::string_view frame) {
    if (connection.out.empty()) {
        // A closed connection is detected by the next read, so a failed send is ignored here.
        const auto sent = std::max<std::ptrdiff_t>(send_some(connection.socket, frame), 0);
        frame.remove_prefix(static_cast<std::size_t>(sent));
        if (frame.empty()) return;
    }
    connection.out += frame;
    watch(connection);
}

void Server::send_to_all(std::string_view frame) {
    for (Member& member : members_) {
        if (member.connection != nullptr) send_frame(*member.connection, frame);
    }
}

void Server::write(Connection& connection) {
    const auto left = std::string_view(connection.out).substr(connection.sent);
    connection.sent +=
        static_cast<std::size_t>(std::max<std::ptrdiff_t>(send_some(connection.socket, left), 0));
    if (connection.sent < connection.out.size()) return watch(connection);
    connection.out.clear();
    connection.sent = 0;
    if (connection.ending) return drop(connection);
    watch(connection);
}

// Updates the events for which epoll waits on this connection.
void Server::watch(Connection& connection) {
    std::uint32_t events = 0;
    if (!connection.out.empty()) events |= EPOLLOUT;
    if (connection.out.size() - connection.sent <= kMaxBacklog) events |= EPOLLIN;
    if (events == connection.events) return;
    epoll_event event{};
    event.events = events;
    event.data.fd = connection.socket.descriptor();
    const int how = connection.events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (::epoll_ctl(epoll_.descriptor(), how, event.data.fd, &event) != 0)
        throw SocketError("rendezvous: epoll failed on rank 0", errno);
    connection.events = events;
}

void Server::drop(Connection& connection) {
    give_up_place(connection);
    connections_.erase(connection.socket.descriptor());
}

// Sends Leave to the remaining members, and reads their input before the sockets are closed. If a
// socket is closed with unread bytes, the connection is reset, and the member may not receive the
// message.
void Server::end() {
    for (Member& member : members_) {
        if (member.connection == nullptr) continue;
        Connection& connection = *member.connection;
        send(connection, Leave{});
        ::shutdown(connection.socket.descriptor(), SHUT_WR);
        while (receive_some(connection.socket, scratch_) > 0) {
        }
    }
}

}  // namespace axle::dist
