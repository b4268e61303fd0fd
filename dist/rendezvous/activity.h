// Private to dist: the current activity of a process, and texts about processes for error messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dist/rendezvous/control.h"
#include "dist/rendezvous/wire.h"
#include "dist/transport/launcher_channel.h"

namespace axle::dist {

// Returns text such as "all_reduce #12" or "all_reduce #12 of group 3".
std::string name_of_collective(const CollectiveCall& call);

// The activity of a process: the last collective that it has called, and a note on its activity
// since that call. An empty note means that the collective has ended.
class Activity {
  public:
    // Sets the last collective and removes the note.
    void announce_call(const CollectiveCall& call);
    void note(std::string_view text);

    // heartbeat() returns the activity as a message. update() replaces the activity by the activity
    // in a received message.
    Heartbeat heartbeat() const;
    void update(const Heartbeat& heartbeat);

    // Returns the note, or the last collective, such as "all_reduce #12", if the note is missing.
    // Returns "" between two collectives and before the first one.
    std::string text() const;
    // Returns text such as "its last collective was all_reduce #12", and the note unless it is
    // empty or the name of this collective.
    std::string history() const;
    // Return the name and the sequence number of the last collective, or "" and 0 before the first
    // collective.
    std::string op() const { return sequence_ == 0 ? "" : name_of(op_); }
    std::uint64_t sequence() const { return sequence_; }

  private:
    std::string collective() const;

    Collective op_ = Collective::barrier;
    std::uint32_t group_ = 0;
    std::uint64_t sequence_ = 0;
    std::optional<std::string> note_;
};

struct Process {
    int rank = 0;
    std::int64_t pid = 0;
    std::string host;

    std::string text() const;  // text such as "rank 1 (pid 4242, host b7)"
};

// Returns text such as "signal 9 (Killed)" or "exited with code 3".
std::string cause_text(const ChildEnd& end);
// Returns text such as "rank 1 (...) died: signal 9 (Killed) during all_reduce #12".
std::string death_text(const Process& process, const std::optional<ChildEnd>& end,
                       const std::string& activity);
// Returns text such as "rank 1 (...) sent no heartbeat for 8 s; its last collective was all_reduce
// #12".
std::string frozen_text(const Process& process, std::chrono::nanoseconds silence,
                        const Activity& activity);

// Returns the failure of a process. `is_running` is true if the process has not ended.
Failure failure_of(const Process& process, bool is_running, const Activity& activity,
                   std::string text);

// Returns text such as "8 s" or "0.5 s".
std::string seconds_text(std::chrono::nanoseconds time);

}  // namespace axle::dist
