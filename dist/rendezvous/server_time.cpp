// Implements the server's timers.
#include <algorithm>

#include "dist/rendezvous/server.h"
#include "kernels/error.h"

namespace axle::dist {

void Server::on_timer() {
    next_timer_ = std::min(now_ + interval_, linger_deadline_);
    pause_listening(false);
    if (now_ >= next_heartbeat_) {
        next_heartbeat_ = now_ + interval_;
        send_to_all(encode(member_of(0).activity.heartbeat()));
    }
    wake_at(next_heartbeat_);

    std::vector<Connection*> late;
    for (const auto& [descriptor, connection] : connections_) {
        if (connection->rank < 0 && now_ >= connection->deadline) late.push_back(connection.get());
    }
    for (Connection* connection : late) drop(*connection);

    for (Member& member : members_) {
        if (member.state != State::dying) continue;
        if (now_ >= member.dying_until || leaving_) {
            report_death(member);
        } else {
            wake_at(member.dying_until);
        }
    }
    joined_ ? check_silence() : check_joined();
}

void Server::check_silence() {
    if (failed_) return;
    const Member* frozen = nullptr;
    auto longest = std::chrono::nanoseconds(options_.heartbeat_timeout);
    for (const Member& member : members_) {
        if (member.connection == nullptr) continue;
        const auto silence = now_ - member.connection->last_received;
        if (silence <= longest) continue;
        longest = silence;
        frozen = &member;
    }
    if (frozen == nullptr) return;
    fail(frozen_text(frozen->process, longest, frozen->activity), frozen->process.rank, true);
}

void Server::check_joined() {
    if (failed_) return;
    if (now_ < join_deadline_) return wake_at(join_deadline_);
    std::vector<int> absent;
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
        if (members_[rank].state == State::not_joined) absent.push_back(static_cast<int>(rank));
    }
    fail(str("join: ", ranks_text(absent), " did not join within ",
             seconds_text(options_.join_timeout), ": ", present_, " of ", members_.size(),
             " processes have joined"),
         absent.front(), true);
}

// Resets the heartbeat timeouts of all clients. Called when all ranks have joined, and after this
// process was suspended.
void Server::reset_silence_timers() {
    for (const auto& [descriptor, connection] : connections_) connection->last_received = now_;
}

}  // namespace axle::dist
