// Private to dist: how two processes prove to each other that they are of one job.
//
//     client                               server
//     Hello     its nonce             ->
//                                     <-   Challenge  its nonce
//     Identity  with the HMAC of both ->
//                                     <-   Welcome    with the HMAC of both, or Refusal
//
// The HMACs cover both nonces and the whole message, under a key made from the job's token. Nothing
// is secret on the wire but the token, and nothing is signed after the handshake.
#pragma once

#include <string_view>
#include <vector>

#include "dist/environment/environment.h"
#include "dist/rendezvous/wire.h"

namespace axle::inline v0::dist {

using Key = std::array<std::uint8_t, 32>;

// CommError where the system gives no randomness.
Nonce make_nonce();
// From the token; without one it only keeps jobs with different masters apart.
Key key_of(const Environment& environment);
// Where rank 0 may listen, in the order of trying: MASTER_PORT, unless that is taken.
std::vector<int> ports_of(const Environment& environment);

struct Nonces {
    Nonce client{}, server{};
};

// Of an Identity or a Welcome.
template <class Message>
void sign(Message& message, const Key& key, const Nonces& nonces);
template <class Message>
bool is_signed(const Message& message, const Key& key, const Nonces& nonces);

}  // namespace axle::inline v0::dist
