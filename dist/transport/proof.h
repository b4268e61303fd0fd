// Private to dist: keys, nonces and HMACs by which two processes prove to each other that they have
// the job's token. They are used by the control connections (dist/rendezvous/handshake.h), the data
// connections (tcp_handshake.h) and the connections of launchers (dist/launch/machines.h).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace axle::dist {

using Key = std::array<std::uint8_t, 32>;
using Nonce = std::array<std::uint8_t, 32>;
using Proof = std::array<std::uint8_t, 32>;  // an HMAC

// The nonces of a handshake. Each side creates one nonce, so a proof is valid for one connection
// only.
struct Nonces {
    Nonce client{}, server{};
};

// Returns random bytes. This function and the next three throw CommError if the system does not
// provide random numbers.
Nonce make_nonce();
// Returns the BLAKE2b hash of a text.
Key hash(std::string_view text);
// Returns a key for one purpose. Only processes that have `key` can compute the returned key.
Key derive_key(const Key& key, std::string_view purpose);
// Returns the HMAC of both nonces and the message.
Proof make_proof(const Key& key, const Nonces& nonces, std::string_view message);
// Compares two proofs in constant time.
bool is_equal(const Proof& a, const Proof& b);

}  // namespace axle::dist
