// Private to dist: Machines, the connection of a launcher to the launchers of the other machines.
//
// The launcher of machine 0 is the server. It decides when a launch starts, its machines and ranks,
// and when the job ends. Each launcher calls proceed() in its only loop, so that no launcher needs
// another thread for its connections.
#pragma once

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include <poll.h>

#include "dist/launch/launch.h"
#include "dist/launch/machine_messages.h"
#include "dist/transport/proof.h"
#include "dist/transport/socket.h"

namespace axle::dist {

using MachineDecision = std::variant<LaunchStart, JobEnd>;

// The connection of a launcher to the launchers of the other machines. Functions do not wait; only
// the destructor on machine 0 does.
class Machines {
  public:
    virtual ~Machines() = default;

    // Sends and receives as much as possible without waiting, and detects machines that are lost.
    // Must be called when a descriptor of add_poll_entries() is ready, and at the time
    // next_timer().
    virtual void proceed() = 0;
    virtual void add_poll_entries(std::vector<pollfd>& waited) const = 0;
    virtual TimePoint next_timer() const = 0;

    // Returns the next launch, or the end of the job, when it has been decided; otherwise nullopt.
    // Returns each decision once.
    virtual std::optional<MachineDecision> take_decision() = 0;
    // Returns the failure of the current launch if it happened on another machine first. The
    // processes of this machine must then end.
    virtual std::optional<LaunchFailure> failure() const = 0;

    // Report that the current launch has failed on this machine (only the first failure), and that
    // all its processes on this machine have ended.
    virtual void report(const LaunchFailure& failure) = 0;
    virtual void report(const LaunchEnd& end) = 0;
};

// Starts the server on machine 0, and connects to it from other machines. Throws CommError if the
// server can't listen, is not reached within the join timeout or refuses this machine. Also throws
// it when `cancel` becomes readable.
std::unique_ptr<Machines> join_machines(const MachinesOptions& options, int max_restarts,
                                        const Socket& cancel);

// Returns the key by which launchers prove that they have the job's token.
Key key_of_launchers(const MachinesOptions& options);

}  // namespace axle::dist
