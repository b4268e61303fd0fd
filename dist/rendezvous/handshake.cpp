#include "dist/rendezvous/handshake.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr int kPorts = 16;
// The range of ports: above the well-known ports, and below the ephemeral ports of Linux.
constexpr int kFirstPort = 20000, kLastPort = 32767;

// Returns a text that identifies the job. It contains the port, because several jobs can have the
// same token, such as torchrun's "none".
std::string job_of(const Environment& e) {
    if (e.token.empty()) return str("master ", e.master_addr, ' ', e.master_port);
    return str("token ", e.master_port, ' ', e.token);
}

}  // namespace

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
    message.proof = make_proof(key, nonces, encode(message));
}
template void sign(JoinRequest&, const Key&, const Nonces&);
template void sign(JoinReply&, const Key&, const Nonces&);

template <class Message>
bool is_signed(const Message& message, const Key& key, const Nonces& nonces) {
    Message again = message;
    sign(again, key, nonces);
    return is_equal(again.proof, message.proof);
}
template bool is_signed(const JoinRequest&, const Key&, const Nonces&);
template bool is_signed(const JoinReply&, const Key&, const Nonces&);

}  // namespace axle::dist
