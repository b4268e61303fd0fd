#include "dist/transport/tcp_poller.h"

#include <array>
#include <cerrno>
#include <cstdint>

#include <sys/epoll.h>

#include "dist/transport/tcp_connection.h"
#include "kernels/thread.h"

namespace axle::dist {
namespace {

Socket make_epoll() {
    Socket epoll(::epoll_create1(EPOLL_CLOEXEC));
    if (epoll.descriptor() < 0) throw SocketError("tcp: epoll_create1 failed", errno);
    return epoll;
}

int control(const Socket& epoll, int operation, int descriptor, std::uint32_t events, void* data) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = data;
    return ::epoll_ctl(epoll.descriptor(), operation, descriptor, &event);
}

void add_to(const Socket& epoll, int descriptor, std::uint32_t events, void* data) {
    if (control(epoll, EPOLL_CTL_ADD, descriptor, events, data) != 0)
        throw SocketError("tcp: epoll_ctl failed", errno);
}

void arm(const Socket& epoll, TcpConnection& connection, std::uint32_t events) {
    control(epoll, EPOLL_CTL_MOD, connection.descriptor(), events | EPOLLONESHOT, &connection);
}

}  // namespace

TcpPoller::TcpPoller() : reads_(make_epoll()), writes_(make_epoll()), stop_event_(make_event()) {
    add_to(reads_, writes_.descriptor(), EPOLLIN, this);
    add_to(reads_, stop_event_.descriptor(), EPOLLIN, nullptr);
    thread_ = kernels::start_thread("axle-tcp", [this] { run(); });
}

TcpPoller::~TcpPoller() { join(); }

void TcpPoller::join() noexcept {
    stop();
    if (thread_.joinable()) thread_.join();
}

void TcpPoller::add(TcpConnection& connection) {
    add_to(writes_, connection.descriptor(), EPOLLONESHOT, &connection);
    add_to(reads_, connection.descriptor(), EPOLLIN | EPOLLONESHOT, &connection);
}

void TcpPoller::arm_read(TcpConnection& connection) { arm(reads_, connection, EPOLLIN); }
void TcpPoller::disarm_read(TcpConnection& connection) { arm(reads_, connection, 0); }
void TcpPoller::arm_write(TcpConnection& connection) { arm(writes_, connection, EPOLLOUT); }

void TcpPoller::run() noexcept {
    std::array<epoll_event, 16> events;
    const auto next_events = [&](const Socket& epoll, int timeout) {
        return ::epoll_wait(epoll.descriptor(), events.data(), static_cast<int>(events.size()),
                            timeout);
    };
    for (;;) {
        bool has_writes = false;
        const int readable = next_events(reads_, -1);
        for (int i = 0; i < readable; ++i) {
            void* const data = events[static_cast<std::size_t>(i)].data.ptr;
            if (data == nullptr) return;
            if (data == this) {
                has_writes = true;
            } else {
                static_cast<TcpConnection*>(data)->on_readable();
            }
        }
        if (!has_writes) continue;
        const int writable = next_events(writes_, 0);
        for (int i = 0; i < writable; ++i)
            static_cast<TcpConnection*>(events[static_cast<std::size_t>(i)].data.ptr)
                ->on_writable();
    }
}

}  // namespace axle::dist
