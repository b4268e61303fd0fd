// Private to dist: the keys of a job, on the server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dist/rendezvous/wire.h"

namespace axle::inline v0::dist {

// Who waits for a key: which Get of which rank.
struct Waiter {
    int rank = 0;
    std::uint64_t id = 0;
};

class KeyStore {
  public:
    // Those who have waited for the key, which they now find; Done::refused tells why not.
    std::vector<Waiter> set(const std::string& key, std::string value, Done& done);
    // To a number, which is stored as its digits.
    std::vector<Waiter> add(const std::string& key, std::int64_t delta, Done& done);
    // Null if there is no such key.
    const std::string* find(const std::string& key) const;

    // CommError if somebody waits for too much.
    void wait(const std::string& key, const Waiter& waiter);
    void cancel(const Waiter& waiter);
    void leave(int rank);

  private:
    std::unordered_map<std::string, std::string> values_;
    std::vector<std::pair<std::string, Waiter>> waiting_;  // few: each rank waits for one at a time
    std::size_t size_ = 0;                                 // of all keys and values
};

}  // namespace axle::inline v0::dist
