// Private to dist: TcpAcceptor, a thread that accepts the data connections of the ranks above this
// rank.
#pragma once

#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "dist/transport/incoming_handshakes.h"
#include "dist/transport/proof.h"
#include "dist/transport/socket.h"

namespace axle::dist {

// Listens in a separate thread, so that clients without the key do not delay the connections that
// carry data (IncomingHandshakes). When all ranks above this rank have connected, the thread ends
// and the listening socket is closed.
class TcpAcceptor {
  public:
    // Called by the thread when a rank has connected. An exception closes the connection, and the
    // function is called again when the rank connects again. Without an exception, it is called
    // once per rank.
    using Connected = std::function<void(int rank, Socket socket)>;

    // Listens at `address` on a free port; the port of `address` must be 0. Throws SocketError.
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
    void connect(int rank, Socket socket);

    const Connected connected_;
    const Socket stop_event_;
    std::optional<IncomingHandshakes> handshakes_;  // empty after the thread has ended
    int port_ = 0;
    bool is_stopped_ = false;
    int missing_;                      // number of ranks that have not connected
    std::vector<bool> has_connected_;  // indexed by rank
    std::thread thread_;
};

}  // namespace axle::dist
