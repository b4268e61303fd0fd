// Private to dist: mutual authentication of two processes of one job.
//
//     client                                  server
//     JoinStart    its nonce             ->
//                                        <-   Challenge  its nonce
//     JoinRequest  with the HMAC of both ->
//                                        <-   JoinReply  with the HMAC of both, or JoinRefusal
//
// An HMAC is computed from the two nonces and all other fields of the message, with a key derived
// from the job's token. Messages are not encrypted, and messages after the handshake are not
// signed.
#pragma once

#include <string_view>
#include <vector>

#include "dist/environment/environment.h"
#include "dist/rendezvous/wire.h"
#include "dist/transport/proof.h"

namespace axle::dist {

// Derives the key from the token and the port. Without a token, the key depends only on MASTER_ADDR
// and MASTER_PORT. It then only distinguishes jobs, and proves nothing.
Key key_of(const Environment& environment);
// Returns the ports on which rank 0's server tries to listen, in this order. This is MASTER_PORT,
// unless the launcher uses MASTER_PORT itself. The ports are then computed from MASTER_PORT and the
// job's token, or, without a token, from MASTER_PORT and MASTER_ADDR.
std::vector<int> ports_of(const Environment& environment);

// Sign and verify a JoinRequest or a JoinReply.
template <class Message>
void sign(Message& message, const Key& key, const Nonces& nonces);
template <class Message>
bool is_signed(const Message& message, const Key& key, const Nonces& nonces);

}  // namespace axle::dist
