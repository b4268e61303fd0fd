#include "dist/transport/incoming_handshakes.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr std::chrono::seconds kHandshake{5};
// The maximum number of unauthenticated connections, in addition to one for each rank above this
// rank.
constexpr std::size_t kPlaces = 32;
// The maximum number of connections that are accepted before handshakes are read again.
constexpr int kAcceptedAtOnce = 8;
// The pause before the next accept() after an error that would repeat immediately.
constexpr std::chrono::milliseconds kPause{100};

}  // namespace

IncomingHandshakes::IncomingHandshakes(Socket listener, const Key& key, int rank, int size,
                                       Connected connected)
    : listener_(std::move(listener)),
      key_(key),
      rank_(rank),
      size_(size),
      connected_(std::move(connected)),
      random_(std::random_device{}()) {}

void IncomingHandshakes::proceed() {
    const TimePoint now = Clock::now();
    // Returns whether a handshake has ended.
    const auto has_ended = [&](const std::unique_ptr<IncomingHandshake>& handshake) {
        try {
            const auto client = handshake->proceed();
            if (!client) return now >= handshake->deadline();
            connected_(*client, handshake->take_socket());
        } catch (const std::exception&) {  // closes the connection
        }
        return true;
    };
    std::erase_if(pending_, has_ended);
    if (now >= paused_until_) accept_some(now);
}

void IncomingHandshakes::add_poll_entries(std::vector<pollfd>& waited) const {
    if (Clock::now() >= paused_until_) waited.push_back({listener_.descriptor(), POLLIN, 0});
    for (const auto& handshake : pending_)
        waited.push_back({handshake->socket().descriptor(), POLLIN, 0});
}

TimePoint IncomingHandshakes::next_timer() const {
    TimePoint next = Clock::now() < paused_until_ ? paused_until_ : TimePoint::max();
    for (const auto& handshake : pending_) next = std::min(next, handshake->deadline());
    return next;
}

void IncomingHandshakes::accept_some(TimePoint now) {
    const std::size_t places = kPlaces + static_cast<std::size_t>(size_ - rank_ - 1);
    for (int i = 0; i < kAcceptedAtOnce; ++i) {
        Socket socket = accept_from(listener_);
        if (socket.descriptor() >= 0) {
            if (pending_.size() >= places) drop_one();
            pending_.push_back(std::make_unique<IncomingHandshake>(std::move(socket), key_, rank_,
                                                                   size_, now + kHandshake));
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        // A signal has interrupted the call, or the client has already closed this connection.
        if (errno == ECONNABORTED || errno == EINTR || errno == EPROTO) continue;
        // This process has too many open files, or the system has no memory.
        if (!drop_one()) {
            paused_until_ = now + kPause;
            return;
        }
    }
}

// Closes a random unauthenticated connection. A fixed choice, such as the oldest one, would close
// every connection of a rank that answers more slowly than other clients. Returns false without
// such a connection.
bool IncomingHandshakes::drop_one() {
    if (pending_.empty()) return false;
    std::swap(pending_[random_() % pending_.size()], pending_.back());
    pending_.pop_back();
    return true;
}

}  // namespace axle::dist
