// Private to dist: StoreClient, the client side of the job's key-value store.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "dist/rendezvous/control_channel.h"

namespace axle::dist {

// Implements the store functions of Control. Thread-safe.
class StoreClient {
  public:
    explicit StoreClient(ControlChannel& channel) : channel_(channel) {}

    void set(const std::string& key, std::string_view value);
    std::string get(const std::string& key, std::chrono::milliseconds timeout);
    std::int64_t add(const std::string& key, std::int64_t delta);

    // Handle replies of the server. Called with the channel's mutex locked.
    void on_reply(StoreReply reply);
    void on_value(Value value);

  private:
    struct Reply {
        std::int64_t sum = 0;
        std::string text;  // the value, or the error text
    };
    template <class Message>
    Reply request(Message message, std::chrono::milliseconds timeout,
                  const std::string& timeout_error);
    void complete(std::uint64_t id, Reply reply);

    ControlChannel& channel_;
    std::uint64_t next_id_ = 1;
    // Replies by the id of the request, nullopt while pending.
    std::map<std::uint64_t, std::optional<Reply>> replies_;
};

}  // namespace axle::dist
