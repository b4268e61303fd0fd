// Private to dist: the current activity of a process, and texts about processes for error messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dist/rendezvous/control.h"
#include "dist/transport/launcher_channel.h"

namespace axle::dist {

// Returns text such as "all_reduce #12" or "all_reduce #12 of group 3".
std::string name_of_collective(const CollectiveCall& call);

// The current activity of a process: the text that note() has set since the last call, or else the
// last collective that the process called.
class Activity {
  public:
    void announce_call(const CollectiveCall& call) {
        op_ = call.op;
        group_ = call.group;
        sequence_ = call.sequence;
        noted_.reset();
    }
    void note(std::string_view text);

    std::string text() const;  // "" before the first activity
    // Return the name and the sequence number of the last collective that was called, or "" and 0
    // before the first one.
    std::string op() const { return sequence_ == 0 ? "" : name_of(op_); }
    std::uint64_t sequence() const { return sequence_; }

  private:
    Collective op_ = Collective::barrier;
    std::uint32_t group_ = 0;
    std::uint64_t sequence_ = 0;
    std::optional<std::string> noted_;
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
// Returns text such as "rank 1 (...) is frozen: no heartbeat for 8 s, last in all_reduce #12".
std::string frozen_text(const Process& process, std::chrono::nanoseconds silence,
                        const std::string& activity);

// Returns text such as "8 s" or "0.5 s".
std::string seconds_text(std::chrono::nanoseconds time);

}  // namespace axle::dist
