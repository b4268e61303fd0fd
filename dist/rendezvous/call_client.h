// Private to dist: CallClient, the client side of the agreement on collective calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/rendezvous/activity.h"
#include "dist/rendezvous/control_channel.h"

namespace axle::dist {

// Implements the agreement functions of Control. Thread-safe, but functions with a Lock parameter
// must be called with the channel's mutex locked.
class CallClient {
  public:
    using Lock = ControlChannel::Lock;

    CallClient(ControlChannel& channel, int world_size);

    void open_group(std::uint32_t group, const std::vector<int>& ranks);
    void announce_call(const CollectiveCall& call) {
        start_call(call, [] {});
    }
    void start_call(const CollectiveCall& call, const std::function<void()>& post);
    std::vector<std::vector<std::int64_t>> wait_for_agreement(std::uint32_t group,
                                                              std::uint64_t sequence);
    void note(std::string_view activity);
    void set_missing_reason(const std::string& why);

    // Handle messages from the server.
    void on_agreement(const Lock& lock, Agreement agreement);
    void on_heartbeat(const Lock&, const Heartbeat& heartbeat) {
        server_activity_.update(heartbeat);
    }

    // Return the activities of this process and of rank 0.
    const Activity& activity(const Lock&) const { return activity_; }
    const Activity& server_activity(const Lock&) const { return server_activity_; }
    // Returns the reason of set_missing_reason() as a message, once, after two seconds without a
    // call of this rank. Otherwise returns nullopt.
    std::optional<MissingRank> take_missing(const Lock& lock, TimePoint now);

  private:
    struct Round {
        Collective op = Collective::barrier;
        std::optional<Agreement> agreement;
    };
    struct Group {
        std::size_t size = 0;
        bool has_server = false;
    };

    ControlChannel& channel_;
    Activity activity_, server_activity_;
    std::map<std::uint32_t, Group> groups_;
    std::map<std::pair<std::uint32_t, std::uint64_t>, Round> rounds_;
    std::uint64_t calls_ = 0;
    std::string missing_reason_;  // the reason why this rank makes no more calls
    // The time at which the reason is sent, unless this rank makes a call before that time.
    std::optional<TimePoint> missing_from_;
};

}  // namespace axle::dist
