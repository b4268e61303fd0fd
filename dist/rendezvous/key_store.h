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

// A pending Get request of a rank.
struct Waiter {
    int rank = 0;
    std::uint64_t id = 0;
};

class KeyStore {
  public:
    // Sets a key and returns the waiters to answer. Writes an error to the reply if it is refused.
    std::vector<Waiter> set(const std::string& key, std::string value, StoreReply& reply);
    // Adds to a number, which is stored as decimal digits.
    std::vector<Waiter> add(const std::string& key, std::int64_t delta, StoreReply& reply);
    // Returns null if the key is not set.
    const std::string* find(const std::string& key) const;

    // Queues a waiter. Throws CommError if there are too many.
    void wait(const std::string& key, const Waiter& waiter);
    void cancel(const Waiter& waiter);
    void leave(int rank);

  private:
    std::unordered_map<std::string, std::string> values_;
    std::vector<std::pair<std::string, Waiter>>
        waiting_;           // short: each rank waits for few keys at a time
    std::size_t size_ = 0;  // total bytes of keys and values
};

}  // namespace axle::dist
