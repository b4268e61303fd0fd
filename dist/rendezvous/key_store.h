// Private to dist: the server's key-value store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dist/rendezvous/wire.h"

namespace axle::dist {

// A Get request of a rank that waits for a key.
struct Waiter {
    int rank = 0;
    std::uint64_t id = 0;
};

class KeyStore {
  public:
    // Sets a key and returns the requests that waited for the key. If the store would become too
    // large, writes an error to `reply`.
    std::vector<Waiter> set(const std::string& key, std::string value, StoreReply& reply);
    // Adds `delta` to a number, which is stored as decimal digits. Writes the sum to `reply`, or an
    // error if the value is not a number, the sum overflows or the store would become too large.
    // Returns the requests that waited for the key.
    std::vector<Waiter> add(const std::string& key, std::int64_t delta, StoreReply& reply);
    // Returns the value of a key, or nullptr if the key is not set.
    const std::string* find(const std::string& key) const;

    // Adds a waiting request. Throws CommError if too many requests wait.
    void wait(const std::string& key, const Waiter& waiter);
    // cancel() removes a waiting request, and leave() all waiting requests of a rank.
    void cancel(const Waiter& waiter);
    void leave(int rank);

  private:
    std::unordered_map<std::string, std::string> values_;
    std::vector<std::pair<std::string, Waiter>>
        waiting_;           // requests by key; a list suffices, because a rank waits for few keys
    std::size_t size_ = 0;  // total bytes of keys and values
};

}  // namespace axle::dist
