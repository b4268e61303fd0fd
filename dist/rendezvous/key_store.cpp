#include "dist/rendezvous/key_store.h"

#include <charconv>
#include <utility>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr std::size_t kMaxSize = 1 << 30;
constexpr std::size_t kMaxWaiters = 1 << 18;

}  // namespace

std::vector<Waiter> KeyStore::set(const std::string& key, std::string value, StoreReply& reply) {
    const auto found = values_.find(key);
    const std::size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
    const std::size_t after = key.size() + value.size();
    if (size_ - before + after > kMaxSize) {
        reply.refused =
            str("store: can't set ", in_quotes(key), " to ", value.size(),
                " bytes: the store contains ", size_, " of at most ", kMaxSize, " bytes");
        return {};
    }
    size_ = size_ - before + after;
    values_[key] = std::move(value);
    std::vector<Waiter> waited;
    std::erase_if(waiting_, [&](const auto& entry) {
        if (entry.first == key) waited.push_back(entry.second);
        return entry.first == key;
    });
    return waited;
}

std::vector<Waiter> KeyStore::add(const std::string& key, std::int64_t delta, StoreReply& reply) {
    std::int64_t value = 0;
    if (const std::string* text = find(key)) {
        const char* end = text->data() + text->size();
        const auto [stop, error] = std::from_chars(text->data(), end, value);
        if (error != std::errc() || stop != end) {
            reply.refused = str("store: the value of ", in_quotes(key), " is not a number");
            return {};
        }
    }
    if (__builtin_add_overflow(value, delta, &reply.sum)) {
        reply.refused = str("store: the sum at ", in_quotes(key), " overflows int64");
        return {};
    }
    return set(key, std::to_string(reply.sum), reply);
}

const std::string* KeyStore::find(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
}

void KeyStore::wait(const std::string& key, const Waiter& waiter) {
    if (waiting_.size() == kMaxWaiters)
        throw CommError(str("store: rank ", waiter.rank, " waits for ", in_quotes(key), ", but ",
                            kMaxWaiters,
                            " requests, the maximum, already wait for keys that are not set"));
    waiting_.emplace_back(key, waiter);
}

void KeyStore::cancel(const Waiter& waiter) {
    std::erase_if(waiting_, [&](const auto& entry) {
        return entry.second.rank == waiter.rank && entry.second.id == waiter.id;
    });
}

void KeyStore::leave(int rank) {
    std::erase_if(waiting_, [&](const auto& entry) { return entry.second.rank == rank; });
}

}  // namespace axle::dist
