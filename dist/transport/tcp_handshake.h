// Private to dist: mutual authentication on the data connections of two ranks, and on the
// connections of launchers.
//
//     client                              server
//     its rank and nonce              ->
//                                     <-  its rank and nonce
//     its rank and a proof            ->
//                                     <-  its rank and a proof
//
// A proof is the HMAC of both nonces, both ranks and the direction, so it is valid for one
// connection of one pair of ranks. Its key is derived from the job's token. The key of a data
// connection also depends on the group's name, and on random bytes that the server's rank has
// published in the store (tcp_transport.cpp). Only ranks that have joined the job can thus make
// proofs for data connections, even if the token is not secret.
//
// All messages of the handshake have the same size. Before the handshake has ended, neither side
// reads other data or allocates memory for it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "dist/transport/proof.h"
#include "dist/transport/socket.h"
#include "kernels/error.h"

namespace axle::dist {

inline constexpr std::size_t kHandshakeMessage = 40;  // bytes

// Thrown by connect_and_prove() if the server has another key or rank. Another attempt would also
// fail.
struct WrongKey : CommError {
    using CommError::CommError;
};

// The server's side of one handshake. It never waits.
class IncomingHandshake {
  public:
    // `rank` is the rank of this process, and `size` the number of ranks. For launchers, these are
    // the index of this machine and the number of machines. Clients have a higher rank. `key` must
    // outlive this object.
    IncomingHandshake(Socket socket, const Key& key, int rank, int size, TimePoint deadline);

    // Receives and sends messages without waiting. Returns the client's rank when the handshake has
    // ended. Throws CommError if it has failed.
    std::optional<int> proceed();
    const Socket& socket() const { return socket_; }
    Socket take_socket() { return std::move(socket_); }
    TimePoint deadline() const { return deadline_; }

  private:
    Socket socket_;
    const Key& key_;
    int rank_, size_;
    TimePoint deadline_;
    std::array<char, kHandshakeMessage> in_{};
    std::size_t received_ = 0;
    std::optional<int> client_;  // the rank in the client's first message
    Nonces nonces_;
};

// Connects rank `from` to rank `to` at `address`, and returns the socket. Throws WrongKey if the
// key or rank of the server differs. Throws CommError if the server refuses or closes the
// connection, after the deadline, or when `cancel` becomes readable.
Socket connect_and_prove(const Address& address, const Key& key, int from, int to,
                         TimePoint deadline, const Socket& cancel);

}  // namespace axle::dist
