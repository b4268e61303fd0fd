#include "dist/transport/tcp_handshake.h"

#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include <poll.h>

#include "kernels/failpoint.h"

namespace axle::dist {
namespace {

constexpr std::uint32_t kMagic = 0x31445841;  // the characters "AXD1"

// A nonce or a proof, and the rank of the sender.
struct HandshakeMessage {
    std::uint32_t magic = kMagic;
    std::int32_t rank = 0;
    std::array<std::uint8_t, 32> bytes{};
};
static_assert(sizeof(HandshakeMessage) == kHandshakeMessage);

Proof proof_of(const char* direction, const Key& key, const Nonces& nonces, int client,
               int server) {
    return make_proof(key, nonces, str("tcp ", direction, ' ', client, ' ', server));
}
Proof client_proof(const Key& key, const Nonces& nonces, int client, int server) {
    return proof_of("from client", key, nonces, client, server);
}
Proof server_proof(const Key& key, const Nonces& nonces, int client, int server) {
    return proof_of("from server", key, nonces, client, server);
}

// Sends a message of the handshake. Never waits, because the buffer of a new socket has room for
// all messages of the handshake.
void send_message(const Socket& socket, int rank, const std::array<std::uint8_t, 32>& bytes) {
    const HandshakeMessage message{.rank = rank, .bytes = bytes};
    const std::string_view raw(reinterpret_cast<const char*>(&message), sizeof message);
    if (send_some(socket, raw) != static_cast<std::ptrdiff_t>(raw.size()))
        throw CommError("handshake: the message could not be sent");
}

// Receives the rest of a message of the handshake. Returns nullopt if the message is not complete
// yet. Throws CommError if the connection has ended, or if the message is not one of Axle.
std::optional<HandshakeMessage> receive_message(const Socket& socket,
                                                std::array<char, kHandshakeMessage>& in,
                                                std::size_t& received) {
    while (received < in.size()) {
        const auto count = receive_some(socket, std::span(in).subspan(received));
        if (count < 0) throw CommError("handshake: the peer closed the connection");
        if (count == 0) return {};
        received += static_cast<std::size_t>(count);
    }
    received = 0;
    HandshakeMessage message;
    std::memcpy(&message, in.data(), sizeof message);
    if (message.magic != kMagic)
        throw CommError("handshake: the peer is not a rank of an Axle job");
    return message;
}

// Waits for an event of the socket. Throws CommError after the deadline, or when `cancel` becomes
// readable.
void wait_for(const Socket& socket, short events, TimePoint deadline, const Socket& cancel) {
    for (;;) {
        pollfd entries[] = {{socket.descriptor(), events, 0}, {cancel.descriptor(), POLLIN, 0}};
        const int found = ::poll(entries, std::size(entries), milliseconds_until(deadline));
        if (entries[1].revents != 0)
            throw CommError("handshake: canceled, because the connections are being closed");
        if (found > 0) return;
        if (found == 0 && Clock::now() >= deadline)
            throw CommError("handshake: the peer did not respond in time");
    }
}

}  // namespace

IncomingHandshake::IncomingHandshake(Socket socket, const Key& key, int rank, int size,
                                     TimePoint deadline)
    : socket_(std::move(socket)), key_(key), rank_(rank), size_(size), deadline_(deadline) {}

std::optional<int> IncomingHandshake::proceed() {
    while (const auto message = receive_message(socket_, in_, received_)) {
        if (!client_) {
            if (message->rank <= rank_ || message->rank >= size_)
                throw CommError(str("handshake: the rank of the client must be from ", rank_ + 1,
                                    " to ", size_ - 1, ": ", message->rank));
            client_ = message->rank;
            nonces_ = {message->bytes, make_nonce()};
            send_message(socket_, rank_, nonces_.server);
            continue;
        }
        if (message->rank != *client_ ||
            !is_equal(message->bytes, client_proof(key_, nonces_, *client_, rank_)))
            throw CommError(str("handshake: the client is not rank ", *client_,
                                ", or does not have the job's token"));
        AXLE_FAILPOINT("connect: before the reply");
        send_message(socket_, rank_, server_proof(key_, nonces_, *client_, rank_));
        return client_;
    }
    return {};
}

Socket connect_and_prove(const Address& address, const Key& key, int from, int to,
                         TimePoint deadline, const Socket& cancel) {
    Socket socket = start_connect(address);
    wait_for(socket, POLLOUT, deadline, cancel);
    finish_connect(socket, address);

    std::array<char, kHandshakeMessage> in{};
    std::size_t received = 0;
    const auto next_message = [&] {
        for (;;) {
            if (const auto message = receive_message(socket, in, received)) return *message;
            wait_for(socket, POLLIN, deadline, cancel);
        }
    };
    Nonces nonces{.client = make_nonce()};
    send_message(socket, from, nonces.client);
    const HandshakeMessage challenge = next_message();
    nonces.server = challenge.bytes;
    AXLE_FAILPOINT("connect: before the proof");
    send_message(socket, from, client_proof(key, nonces, from, to));
    const HandshakeMessage reply = next_message();
    if (challenge.rank != to || reply.rank != to ||
        !is_equal(reply.bytes, server_proof(key, nonces, from, to)))
        throw WrongKey(
            str("handshake: the peer is not rank ", to, ", or does not have the job's token"));
    return socket;
}

}  // namespace axle::dist
