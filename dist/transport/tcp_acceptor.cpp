#include "dist/transport/tcp_acceptor.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <utility>

#include <poll.h>

#include "kernels/error.h"
#include "kernels/thread.h"

namespace axle::dist {
namespace {

constexpr std::chrono::seconds kHandshake{5};
// The number of connections without proof, in addition to one for each missing rank.
constexpr std::size_t kPlaces = 32;
// Connections that are accepted before the thread reads handshakes again.
constexpr int kAcceptedAtOnce = 8;
// The time without accept() after an error that another call would return at once.
constexpr std::chrono::milliseconds kPause{100};

}  // namespace

TcpAcceptor::TcpAcceptor(const Address& address, const Key& key, int rank, int size,
                         Connected connected)
    : key_(key),
      rank_(rank),
      size_(size),
      connected_(std::move(connected)),
      stop_event_(make_event()),
      listener_(listen_at(address)),
      port_(port_of(own_address(listener_))),
      missing_(size - rank - 1),
      has_connected_(static_cast<std::size_t>(size)),
      random_(std::random_device{}()) {
    thread_ = kernels::start_thread("axle-accept", [this] { run(); });
}

TcpAcceptor::~TcpAcceptor() {
    stop();
    thread_.join();
}

void TcpAcceptor::run() noexcept {
    while (!stopped_ && missing_ > 0) {
        try {
            poll_once();
        } catch (const std::exception&) {  // no memory; close what may be closed and continue
            pending_.clear();
        }
    }
    pending_.clear();
    listener_ = Socket();
}

void TcpAcceptor::poll_once() {
    now_ = Clock::now();
    const bool is_paused = now_ < paused_until_;
    TimePoint wake = is_paused ? paused_until_ : TimePoint::max();
    std::vector<pollfd> entries{{stop_event_.descriptor(), POLLIN, 0},
                                {is_paused ? -1 : listener_.descriptor(), POLLIN, 0}};
    for (const auto& handshake : pending_) {
        entries.push_back({handshake->socket().descriptor(), POLLIN, 0});
        wake = std::min(wake, handshake->deadline());
    }
    const int timeout = wake == TimePoint::max() ? -1 : milliseconds_until(wake);
    if (::poll(entries.data(), entries.size(), timeout) < 0) return;
    now_ = Clock::now();
    stopped_ = entries[0].revents != 0;
    if (stopped_) return;
    std::vector<bool> is_ready;
    for (auto entry = entries.begin() + 2; entry != entries.end(); ++entry)
        is_ready.push_back(entry->revents != 0);
    proceed_all(is_ready);
    if (entries[1].revents != 0 && missing_ > 0) accept_some();
}

void TcpAcceptor::proceed_all(const std::vector<bool>& is_ready) {
    std::vector<std::unique_ptr<IncomingHandshake>> kept;
    for (std::size_t i = 0; i < pending_.size(); ++i) {
        auto& handshake = pending_[i];
        try {
            const auto client = is_ready[i] ? handshake->proceed() : std::nullopt;
            if (client && !has_connected_[static_cast<std::size_t>(*client)]) {
                connected_(*client, handshake->take_socket());
                has_connected_[static_cast<std::size_t>(*client)] = true;
                --missing_;
            } else if (!client && now_ < handshake->deadline()) {
                kept.push_back(std::move(handshake));
            }
        } catch (const std::exception&) {  // closes the connection
        }
    }
    pending_ = std::move(kept);
}

void TcpAcceptor::accept_some() {
    const std::size_t places = kPlaces + static_cast<std::size_t>(missing_);
    for (int i = 0; i < kAcceptedAtOnce; ++i) {
        Socket socket = accept_from(listener_);
        if (socket.descriptor() >= 0) {
            if (pending_.size() >= places) drop_one();
            pending_.push_back(std::make_unique<IncomingHandshake>(std::move(socket), key_, rank_,
                                                                   size_, now_ + kHandshake));
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        // The client has closed this connection already; the next one may be open.
        if (errno == ECONNABORTED || errno == EINTR || errno == EPROTO) continue;
        // This process has too many open files, or the system has no memory.
        if (!drop_one()) {
            paused_until_ = now_ + kPause;
            return;
        }
    }
}

// Closes a random connection without proof. A fixed choice, such as the oldest one, would close
// every connection of a rank that is farther away than the strangers. Returns false if there is
// none.
bool TcpAcceptor::drop_one() {
    if (pending_.empty()) return false;
    std::swap(pending_[random_() % pending_.size()], pending_.back());
    pending_.pop_back();
    return true;
}

}  // namespace axle::dist
