// Implements the server's handling of connections before authentication.
#include <algorithm>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>
#include <sys/resource.h>

#include "dist/rendezvous/server.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

// The maximum number of connections that are accepted before the server reads messages again.
constexpr int kAcceptedAtOnce = 64;
// The time within which a process must prove that it has the token.
constexpr std::chrono::seconds kHandshake{5};

bool is_out_of_resources(int error) {
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

std::size_t max_unauthenticated() {
    constexpr rlim_t kLeast = 16, kMost = 1024;
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return kLeast;
    return std::clamp(files.rlim_cur / 8, kLeast, kMost);
}

void Server::accept_some() {
    for (int i = 0; i < kAcceptedAtOnce && !leaving_; ++i) {
        Socket socket = accept_from(listener_);
        if (socket.descriptor() >= 0) {
            add_unauthenticated(std::move(socket));
            continue;
        }
        const int error = errno;
        if (error == EAGAIN || error == EWOULDBLOCK) return;
        // A signal has interrupted the call, or the client has already closed this connection.
        if (error == ECONNABORTED || error == EINTR || error == EPROTO) continue;
        if (is_out_of_resources(error) && drop_unauthenticated()) continue;
        return pause_listening(true);
    }
}

void Server::add_unauthenticated(Socket socket) {
    if (unauthenticated_.size() >= max_unauthenticated_) drop_unauthenticated();
    const int descriptor = socket.descriptor();
    auto added = std::make_unique<Connection>();
    added->socket = std::move(socket);
    added->last_received = now_;
    added->deadline = now_ + std::min<std::chrono::milliseconds>(kHandshake, options_.join_timeout);
    added->place = unauthenticated_.size();
    Connection& connection = *connections_.emplace(descriptor, std::move(added)).first->second;
    unauthenticated_.push_back(&connection);
    try {
        watch(connection);
    } catch (const SocketError&) {  // the system has no memory for the connection
        drop(connection);
    }
}

// Closes a random unauthenticated connection. A fixed choice, such as the oldest one, would close
// every connection of a rank that answers more slowly than other clients. Returns false without
// such a connection.
bool Server::drop_unauthenticated() {
    if (unauthenticated_.empty()) return false;
    drop(*unauthenticated_[random_() % unauthenticated_.size()]);
    return true;
}

void Server::give_up_place(Connection& connection) {
    if (connection.place == kNoPlace) return;
    Connection& last = *unauthenticated_.back();
    unauthenticated_[connection.place] = &last;
    last.place = connection.place;
    unauthenticated_.pop_back();
    connection.place = kNoPlace;
}

// Stops accepting connections if `pause` is true; otherwise accepts them again. A connection that
// can't be accepted would wake epoll continuously.
void Server::pause_listening(bool pause) {
    if (paused_ == pause || leaving_) return;
    paused_ = pause;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = listener_.descriptor();
    ::epoll_ctl(epoll_.descriptor(), pause ? EPOLL_CTL_DEL : EPOLL_CTL_ADD, listener_.descriptor(),
                &event);
}

}  // namespace axle::dist
