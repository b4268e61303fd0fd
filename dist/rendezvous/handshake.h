// Private to dist: mutual authentication of two processes of one job.
//
//     client                                  server
//     JoinStart    its nonce             ->
//                                        <-   Challenge  its nonce
//     JoinRequest  with the HMAC of both ->
//                                        <-   JoinReply  with the HMAC of both, or JoinRefusal
//
// An HMAC is computed from the two nonces and all other fields of the message, with a key derived
// from the job's token. Only the token is secret. Messages after the handshake are not signed.
#pragma once

#include <string_view>
#include <vector>

#include "dist/environment/environment.h"
#include "dist/rendezvous/wire.h"
#include "dist/transport/proof.h"

namespace axle::dist {

// Derives the key from the token and the port. Without a token, the key depends only on MASTER_ADDR
// and MASTER_PORT, and only distinguishes jobs.
Key key_of(const Environment& environment);
// Returns the ports on which rank 0's server tries to listen, in this order: MASTER_PORT, or if the
// launcher uses MASTER_PORT, ports computed from MASTER_PORT and the job's token (MASTER_ADDR if
// there is no token).
std::vector<int> ports_of(const Environment& environment);

// Sign and verify a JoinRequest or a JoinReply.
template <class Message>
void sign(Message& message, const Key& key, const Nonces& nonces);
template <class Message>
bool is_signed(const Message& message, const Key& key, const Nonces& nonces);

}  // namespace axle::dist
