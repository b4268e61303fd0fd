// Private to dist: TcpAcceptor, which accepts the data connections of the ranks above this one.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "dist/transport/proof.h"
#include "dist/transport/socket.h"
#include "dist/transport/tcp_handshake.h"

namespace axle::dist {

// Listens in a thread of its own, so that strangers do not disturb the connections that carry data.
// The thread never waits for a single client. A client has five seconds to prove that it is a rank
// of this job. Connections without proof have a fixed number of places; if all are taken, a new
// connection replaces a random one, and a rank whose connection was closed tries again. When all
// ranks above this one have connected, the thread ends and the listening socket is closed.
class TcpAcceptor {
  public:
    // Called by the thread for each rank, once. May throw, which closes the connection.
    using Connected = std::function<void(int rank, Socket socket)>;

    // Listens at a port of `address`, whose port is 0. Throws SocketError.
    TcpAcceptor(const Address& address, const Key& key, int rank, int size, Connected connected);
    ~TcpAcceptor();
    TcpAcceptor(const TcpAcceptor&) = delete;
    TcpAcceptor& operator=(const TcpAcceptor&) = delete;

    int port() const { return port_; }
    // Ends the thread, without waiting. Thread-safe.
    void stop() noexcept { signal_event(stop_event_); }

  private:
    void run() noexcept;
    void poll_once();
    void proceed_all(const std::vector<bool>& is_ready);
    void accept_some();
    bool drop_one();

    const Key key_;
    const int rank_, size_;
    const Connected connected_;
    const Socket stop_event_;
    Socket listener_;
    const int port_;
    int missing_;  // ranks that have not connected
    bool stopped_ = false;
    TimePoint now_, paused_until_;
    std::vector<bool> has_connected_;  // by rank
    std::vector<std::unique_ptr<IncomingHandshake>> pending_;
    std::minstd_rand random_;
    std::thread thread_;
};

}  // namespace axle::dist
