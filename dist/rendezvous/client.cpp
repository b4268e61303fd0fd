#include "dist/rendezvous/client.h"

#include "dist/rendezvous/handshake.h"
#include "dist/rendezvous/join.h"

namespace axle::dist {
namespace {

std::string address_of(const Address& server) {
    const auto chosen = address_of_chosen_interface();
    return (chosen.empty() ? local_address_towards(server) : chosen.front()).host();
}

}  // namespace

Client::Client(const Environment& environment, const ControlOptions& options)
    : rank_(environment.rank),
      size_(environment.world_size),
      key_(key_of(environment)),
      server_(rank_ == 0 ? std::make_unique<Server>(environment, options) : nullptr),
      channel_(
          join_server(environment, options, launcher_, server_ ? &server_->address() : nullptr),
          options),
      local_address_(address_of(channel_.server_address())),
      store_(channel_),
      calls_(channel_, size_),
      monitor_(channel_, calls_, launcher_, rank_) {
    channel_.start(
        [this](const ControlChannel::Lock& lock, const Frame& frame) { dispatch(lock, frame); });
    monitor_.start();
}

Client::~Client() {
    monitor_.stop();
    channel_.leave(leave_reason_);
}

void Client::set_leave_reason(const std::string& why) {
    const ControlChannel::Lock lock(channel_.mutex());
    leave_reason_ = why;
}

void Client::dispatch(const ControlChannel::Lock& lock, const Frame& frame) {
    switch (frame.kind) {
        case Kind::agreement:
            return calls_.on_agreement(lock, decode<Agreement>(frame.body));
        case Kind::heartbeat:
            return calls_.on_heartbeat(lock, decode<Heartbeat>(frame.body));
        case Kind::store_reply:
            return store_.on_reply(decode<StoreReply>(frame.body));
        case Kind::value:
            return store_.on_value(decode<Value>(frame.body));
        case Kind::failure:
            return channel_.fail(lock, decode<Failure>(frame.body));
        case Kind::leave:
            return channel_.on_server_left(lock);
        default:
            return;
    }
}

std::unique_ptr<Control> Control::join(const Environment& environment,
                                       const ControlOptions& options) {
    return std::make_unique<Client>(environment, options);
}

}  // namespace axle::dist
