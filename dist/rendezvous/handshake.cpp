#include "dist/rendezvous/handshake.h"

#include <algorithm>
#include <cstring>
#include <span>

#include <sodium.h>

#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr int kPorts = 16;
// The range of ports: above the well-known ports, and below the ephemeral ports of Linux.
constexpr int kFirstPort = 20000, kLastPort = 32767;

void start_sodium() {
    if (sodium_init() < 0) throw CommError("handshake: cannot get random bytes from the system");
}

std::span<const std::uint8_t> bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

Key hash(std::string_view text) {
    start_sodium();
    Key key{};
    crypto_generichash(key.data(), key.size(), bytes_of(text).data(), text.size(), nullptr, 0);
    return key;
}

Proof hmac(const Key& key, const Nonces& nonces, std::string_view message) {
    static_assert(std::tuple_size_v<Key> == crypto_auth_hmacsha256_KEYBYTES);
    static_assert(std::tuple_size_v<Proof> == crypto_auth_hmacsha256_BYTES);
    start_sodium();
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, key.data(), key.size());
    crypto_auth_hmacsha256_update(&state, nonces.client.data(), nonces.client.size());
    crypto_auth_hmacsha256_update(&state, nonces.server.data(), nonces.server.size());
    crypto_auth_hmacsha256_update(&state, bytes_of(message).data(), message.size());
    Proof proof{};
    crypto_auth_hmacsha256_final(&state, proof.data());
    return proof;
}

// Returns a text that identifies the job. It contains the port, because jobs can have the same
// token, such as torchrun's "none".
std::string job_of(const Environment& e) {
    if (e.token.empty()) return str("master ", e.master_addr, ' ', e.master_port);
    return str("token ", e.master_port, ' ', e.token);
}

}  // namespace

Nonce make_nonce() {
    start_sodium();
    Nonce nonce{};
    randombytes_buf(nonce.data(), nonce.size());
    return nonce;
}

Key key_of(const Environment& environment) { return hash("axle key " + job_of(environment)); }

std::vector<int> ports_of(const Environment& environment) {
    if (!environment.port_is_taken) return {environment.master_port};
    std::vector<int> ports;
    for (int round = 0; ports.size() < kPorts; ++round) {
        const Key bytes = hash(str("axle port ", round, ' ', job_of(environment)));
        std::uint32_t number = 0;
        std::memcpy(&number, bytes.data(), sizeof number);
        const int port = kFirstPort + static_cast<int>(number % (kLastPort - kFirstPort + 1));
        if (std::ranges::find(ports, port) == ports.end()) ports.push_back(port);
    }
    return ports;
}

template <class Message>
void sign(Message& message, const Key& key, const Nonces& nonces) {
    message.proof = {};
    message.proof = hmac(key, nonces, encode(message));
}
template void sign(JoinRequest&, const Key&, const Nonces&);
template void sign(JoinReply&, const Key&, const Nonces&);

template <class Message>
bool is_signed(const Message& message, const Key& key, const Nonces& nonces) {
    Message again = message;
    sign(again, key, nonces);
    return sodium_memcmp(again.proof.data(), message.proof.data(), again.proof.size()) == 0;
}
template bool is_signed(const JoinRequest&, const Key&, const Nonces&);
template bool is_signed(const JoinReply&, const Key&, const Nonces&);

}  // namespace axle::dist
