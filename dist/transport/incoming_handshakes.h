// Private to dist: IncomingHandshakes, a listening socket and its unauthenticated connections.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include <poll.h>

#include "dist/transport/proof.h"
#include "dist/transport/socket.h"
#include "dist/transport/tcp_handshake.h"

namespace axle::dist {

// Accepts connections and runs the server's side of their handshakes. A client has five seconds to
// prove that it has the key; until then, its connection is unauthenticated. When the maximum number
// of unauthenticated connections is reached, a new connection replaces a random one. A client whose
// connection was closed connects again. No function waits. Used by one thread.
class IncomingHandshakes {
  public:
    // Called for each client that has proven that it has the key. `rank` is the client's rank,
    // which is above the rank of the server. A rank can connect several times. An exception of this
    // function closes the connection.
    using Connected = std::function<void(int rank, Socket socket)>;

    IncomingHandshakes(Socket listener, const Key& key, int rank, int size, Connected connected);

    // Accepts connections, and receives and sends messages, without waiting.
    void proceed();
    // Closes all unauthenticated connections.
    void clear() { pending_.clear(); }
    void add_poll_entries(std::vector<pollfd>& waited) const;
    // Returns the time at which proceed() must be called even if there is nothing to read, or
    // TimePoint::max() if there is none.
    TimePoint next_timer() const;

  private:
    void accept_some(TimePoint now);
    bool drop_one();

    const Socket listener_;
    const Key key_;
    const int rank_, size_;
    const Connected connected_;
    TimePoint paused_until_;
    std::vector<std::unique_ptr<IncomingHandshake>> pending_;
    std::minstd_rand random_;
};

}  // namespace axle::dist
