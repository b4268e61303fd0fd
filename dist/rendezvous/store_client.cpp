#include "dist/rendezvous/store_client.h"

#include <utility>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

using std::chrono::milliseconds;
using Lock = ControlChannel::Lock;

void check_key(const std::string& key) {
    if (key.size() <= kMaxKey) return;
    throw ValueError(str("store: a key can have at most ", kMaxKey, " bytes: it has ", key.size()));
}

std::string no_reply(const std::string& key, milliseconds timeout) {
    return str("store: no reply from rank 0 for key ", in_quotes(key), " within ",
               seconds_text(timeout));
}

}  // namespace

template <class Message>
StoreClient::Reply StoreClient::request(Message message, milliseconds timeout,
                                        const std::string& timeout_error) {
    {
        const Lock lock(channel_.mutex());
        channel_.check(lock);
        message.id = next_id_++;
        replies_[message.id];
    }
    channel_.send(message);
    Lock lock(channel_.mutex());
    const auto entry = replies_.find(message.id);
    const bool there =
        channel_.wait(lock, Clock::now() + timeout, [&] { return entry->second.has_value(); });
    const auto reply = std::move(replies_.extract(entry).mapped());
    channel_.check(lock);
    if (there && reply) return *reply;
    lock.unlock();
    channel_.send(Cancel{message.id});
    throw CommError(timeout_error);
}

void StoreClient::set(const std::string& key, std::string_view value) {
    check_key(key);
    if (value.size() > kMaxValue) {
        throw ValueError(str("store: a value can have at most ", kMaxValue, " bytes: the value of ",
                             in_quotes(key), " has ", value.size()));
    }
    const milliseconds timeout = channel_.options().timeout;
    const Reply reply = request(Set{0, key, std::string(value)}, timeout, no_reply(key, timeout));
    if (!reply.text.empty()) throw CommError(reply.text);
}

std::string StoreClient::get(const std::string& key, milliseconds timeout) {
    check_key(key);
    return request(
               Get{0, key}, timeout,
               str("store: key ", in_quotes(key), " was not set within ", seconds_text(timeout)))
        .text;
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t delta) {
    check_key(key);
    const milliseconds timeout = channel_.options().timeout;
    const Reply reply = request(Add{0, key, delta}, timeout, no_reply(key, timeout));
    if (!reply.text.empty()) throw CommError(reply.text);
    return reply.sum;
}

void StoreClient::complete(std::uint64_t id, Reply reply) {
    const auto pending = replies_.find(id);
    if (pending != replies_.end()) pending->second = std::move(reply);
}

void StoreClient::on_reply(StoreReply reply) {
    complete(reply.id, {reply.sum, std::move(reply.refused)});
}

void StoreClient::on_value(Value value) { complete(value.id, {0, std::move(value.value)}); }

}  // namespace axle::dist
