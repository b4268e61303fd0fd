#include "dist/transport/tcp_transport.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <charconv>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dist/rendezvous/control.h"
#include "dist/transport/proof.h"
#include "dist/transport/tcp_acceptor.h"
#include "dist/transport/tcp_connection.h"
#include "dist/transport/tcp_poller.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

using std::chrono::milliseconds;

// The first and the maximum pause between two attempts to connect. The pause is doubled after each
// attempt.
constexpr milliseconds kFirstPause{5}, kLongestPause{200};
// The maximum time that the destructor waits until sent data has arrived.
constexpr milliseconds kCloseTimeout{500};

constexpr const char* kClosed = "the connections were closed";

class TcpTransport final : public Transport, public TcpOwner {
  public:
    TcpTransport(Control& control, const std::string& name, int rank, int size,
                 milliseconds timeout);
    ~TcpTransport() override;
    TcpTransport(const TcpTransport&) = delete;
    TcpTransport& operator=(const TcpTransport&) = delete;

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    void connect_all() override;
    std::unique_ptr<Message> send(const void* data, std::int64_t bytes, int to,
                                  std::uint64_t slot) override {
        assert(bytes >= 0);
        return connect(to).send(data, static_cast<std::uint64_t>(bytes), slot);
    }
    std::unique_ptr<Message> receive(void* data, std::int64_t bytes, int from,
                                     std::uint64_t slot) override {
        assert(bytes >= 0);
        return connect(from).receive(data, static_cast<std::uint64_t>(bytes), slot);
    }
    void abort() noexcept override { fail_all(closed_); }

  private:
    struct Peer {
        std::mutex connecting;
        std::atomic<TcpConnection*> connection = nullptr;
    };
    // The address of a rank's listening socket, and a salt: random bytes from which the keys of its
    // connections are derived. Published in the store as the bytes of the salt, the port, a space
    // and the host.
    struct Listener {
        Nonce salt{};
        int port = 0;
        std::string host;
    };

    milliseconds timeout() const override { return timeout_; }
    void fail_all(const std::string& reason) noexcept override;

    std::string store_key(int rank) const { return str("tcp/", name_, '/', rank); }
    Key key_of(const Nonce& salt) const;
    void publish(const Listener& listener);
    Listener listener_of(int peer);

    Peer& peer_of(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
    TcpConnection& connect(int peer);
    void open_connection(int peer);
    void wait_for_connection(int peer);
    void add_connection(int peer, Socket socket);
    bool is_flushed();
    [[noreturn]] void fail(int peer, const std::string& reason) const {
        throw CommError(str("tcp: connection to rank ", peer, " failed: ", reason));
    }

    Control& control_;
    const std::string name_;
    const int rank_, size_;
    const milliseconds timeout_;
    const Socket failed_event_;
    const std::string closed_ = kClosed;  // allocated early: abort() must not fail
    std::vector<Peer> peers_;
    bool all_connected_ = false;  // used only by the group's worker thread

    std::mutex mutex_;
    std::condition_variable changed_;
    std::string failure_;
    std::vector<std::unique_ptr<TcpConnection>> connections_;
    TcpPoller poller_;
    std::unique_ptr<TcpAcceptor> acceptor_;  // nullptr on the highest rank
};

TcpTransport::TcpTransport(Control& control, const std::string& name, int rank, int size,
                           milliseconds timeout)
    : control_(control),
      name_(name),
      rank_(rank),
      size_(size),
      timeout_(timeout),
      failed_event_(make_event()),
      peers_(static_cast<std::size_t>(size)) {
    if (rank == size - 1) return;
    Listener listener{.salt = make_nonce(), .host = control.local_address()};
    acceptor_ = std::make_unique<TcpAcceptor>(
        resolve(listener.host, 0, "tcp: ").front(), key_of(listener.salt), rank, size,
        [this](int peer, Socket socket) { add_connection(peer, std::move(socket)); });
    listener.port = acceptor_->port();
    publish(listener);
}

// Sockets already contain all data, because all messages end before the transport is destroyed.
TcpTransport::~TcpTransport() {
    acceptor_.reset();
    poller_.join();
    if (!failure_.empty()) return;
    for (const auto& connection : connections_) connection->close_writing();
    const TimePoint deadline = Clock::now() + kCloseTimeout;
    while (!is_flushed() && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
}

bool TcpTransport::is_flushed() {
    return std::ranges::all_of(connections_,
                               [](const auto& connection) { return connection->is_flushed(); });
}

Key TcpTransport::key_of(const Nonce& salt) const {
    return control_.key_for(str(
        "tcp/", name_, '/', std::string_view(reinterpret_cast<const char*>(&salt), sizeof salt)));
}

void TcpTransport::publish(const Listener& listener) {
    std::string value(reinterpret_cast<const char*>(&listener.salt), sizeof listener.salt);
    control_.set(store_key(rank_), str(value, listener.port, ' ', listener.host));
}

TcpTransport::Listener TcpTransport::listener_of(int peer) {
    const std::string value = control_.get(store_key(peer), timeout_);
    Listener listener;
    constexpr std::size_t kSalt = sizeof listener.salt;
    if (value.size() > kSalt) {
        std::memcpy(&listener.salt, value.data(), kSalt);
        const char* const end = value.data() + value.size();
        const auto [stop, error] = std::from_chars(value.data() + kSalt, end, listener.port);
        if (error == std::errc() && stop != end && *stop == ' ') {
            listener.host.assign(stop + 1, end);
            return listener;
        }
    }
    fail(peer, "the rank has published an invalid address");
}

// Connects to the other ranks in ascending order. This can't deadlock: a rank waits only for ranks
// above it, and these ranks connect to it before they wait.
void TcpTransport::connect_all() {
    if (all_connected_) return;
    for (int peer = 0; peer < size_; ++peer)
        if (peer != rank_) connect(peer);
    all_connected_ = true;
}

TcpConnection& TcpTransport::connect(int peer) {
    assert(peer >= 0 && peer < size_ && peer != rank_);
    Peer& to = peer_of(peer);
    if (to.connection.load(std::memory_order_acquire) == nullptr) {
        const std::lock_guard lock(to.connecting);
        if (to.connection == nullptr && peer < rank_) open_connection(peer);
        if (to.connection == nullptr) wait_for_connection(peer);
    }
    return *to.connection.load(std::memory_order_acquire);
}

// Connects to a rank below this rank. After an error other than WrongKey, tries again until the
// timeout: a rank that has too many unauthenticated connections closes some of them.
void TcpTransport::open_connection(int peer) {
    const TimePoint deadline = Clock::now() + timeout_;
    const Listener listener = listener_of(peer);
    const Address address = resolve(listener.host, listener.port, "tcp: ").front();
    const Key key = key_of(listener.salt);
    milliseconds pause = kFirstPause;
    for (;;) {
        std::string reason;
        try {
            return add_connection(
                peer, connect_and_prove(address, key, rank_, peer, deadline, failed_event_));
        } catch (const WrongKey& error) {
            fail(peer, error.what());
        } catch (const CommError& error) {
            reason = error.what();
        }
        const TimePoint next = std::min(Clock::now() + pause, deadline);
        if (wait_readable(failed_event_, next)) fail(peer, kClosed);
        if (Clock::now() >= deadline)
            fail(peer, str("timed out after ", timeout_.count(), " ms: ", reason));
        pause = std::min(pause * 2, kLongestPause);
    }
}

void TcpTransport::wait_for_connection(int peer) {
    std::unique_lock lock(mutex_);
    const bool in_time = changed_.wait_for(
        lock, timeout_, [&] { return !failure_.empty() || peer_of(peer).connection != nullptr; });
    if (!failure_.empty()) fail(peer, failure_);
    if (!in_time)
        fail(peer, str("timed out after ", timeout_.count(), " ms: the rank did not connect"));
}

// Adds an established connection. Called by the thread that opened the connection, or by the
// acceptor's thread.
void TcpTransport::add_connection(int peer, Socket socket) {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) fail(peer, failure_);
    auto connection = std::make_unique<TcpConnection>(std::move(socket), peer, *this, poller_);
    connections_.reserve(static_cast<std::size_t>(size_));
    poller_.add(*connection);
    connections_.push_back(std::move(connection));
    peer_of(peer).connection.store(connections_.back().get(), std::memory_order_release);
    changed_.notify_all();
}

void TcpTransport::fail_all(const std::string& reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    try {
        failure_ = reason;
    } catch (const std::bad_alloc&) {
        failure_ = "out of memory";  // short enough to need no memory allocation
    }
    signal_event(failed_event_);
    if (acceptor_) acceptor_->stop();
    poller_.stop();
    for (const auto& connection : connections_) connection->fail(reason);
    changed_.notify_all();
}

}  // namespace

std::unique_ptr<Transport> open_tcp_transport(Control& control, const std::string& name, int rank,
                                              int size, milliseconds timeout) {
    return std::make_unique<TcpTransport>(control, name, rank, size, timeout);
}

}  // namespace axle::dist
