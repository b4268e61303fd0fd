#include "dist/transport/proof.h"

#include <initializer_list>
#include <span>
#include <tuple>

#include <sodium.h>

#include "kernels/error.h"

namespace axle::dist {
namespace {

void start_sodium() {
    if (sodium_init() < 0) throw CommError("handshake: cannot get random bytes from the system");
}

std::span<const std::uint8_t> bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

Proof hmac(const Key& key, std::initializer_list<std::span<const std::uint8_t>> parts) {
    static_assert(std::tuple_size_v<Key> == crypto_auth_hmacsha256_KEYBYTES);
    static_assert(std::tuple_size_v<Proof> == crypto_auth_hmacsha256_BYTES);
    start_sodium();
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, key.data(), key.size());
    for (const auto part : parts) crypto_auth_hmacsha256_update(&state, part.data(), part.size());
    Proof proof{};
    crypto_auth_hmacsha256_final(&state, proof.data());
    return proof;
}

}  // namespace

Nonce make_nonce() {
    start_sodium();
    Nonce nonce{};
    randombytes_buf(nonce.data(), nonce.size());
    return nonce;
}

Key hash(std::string_view text) {
    start_sodium();
    Key key{};
    crypto_generichash(key.data(), key.size(), bytes_of(text).data(), text.size(), nullptr, 0);
    return key;
}

// A derived key is never a proof: its input has 32 bytes, and the input of make_proof() has at
// least 64 bytes.
Key derive_key(const Key& key, std::string_view purpose) { return hmac(key, {hash(purpose)}); }

Proof make_proof(const Key& key, const Nonces& nonces, std::string_view message) {
    return hmac(key, {nonces.client, nonces.server, bytes_of(message)});
}

bool is_equal(const Proof& a, const Proof& b) {
    return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace axle::dist
