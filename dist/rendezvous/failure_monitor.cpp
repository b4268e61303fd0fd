#include "dist/rendezvous/failure_monitor.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <poll.h>

#include "core/files/file.h"
#include "kernels/error.h"
#include "kernels/failpoint.h"
#include "kernels/thread.h"

namespace axle::dist {
namespace {

using std::chrono::milliseconds;

// Time to wait for the launcher's report of the end of rank 0.
constexpr milliseconds kCauseOfDeath{300};
// The time for which the background thread does not read the socket after a call has read it.
constexpr milliseconds kReadPause{50};

}  // namespace

FailureMonitor::FailureMonitor(ControlChannel& channel, CallClient& calls,
                               LauncherConnection& launcher, int rank)
    : channel_(channel),
      calls_(calls),
      launcher_(launcher),
      rank_(rank),
      interval_(std::clamp<milliseconds>(channel.options().heartbeat_timeout / 4, milliseconds(1),
                                         milliseconds(1000))),
      quit_event_(make_event()) {
    for (const ChildEnd& end : channel.child_ends()) ends_.emplace(end.rank, end);
}

void FailureMonitor::start() {
    thread_ = kernels::start_thread("axle control", [this] { run(); });
}

void FailureMonitor::stop() {
    {
        const Lock lock(channel_.mutex());
        quit_ = true;
    }
    signal_event(quit_event_);
    thread_.join();
}

std::optional<std::string> FailureMonitor::failure() const {
    const Lock lock(channel_.mutex());
    const auto& failure = channel_.failure(lock);
    if (!failure) return {};
    return failure->text;
}

void FailureMonitor::report(const std::string& text) {
    try {
        channel_.send(Report{at_most(text, kMaxText)});
    } catch (const CommError&) {  // the job has failed already
    }
    Lock lock(channel_.mutex());
    channel_.wait_for_failure(lock);
    channel_.fail(lock, {.text = text});
}

void FailureMonitor::on_failure(std::function<void()> wake) {
    {
        const Lock lock(channel_.mutex());
        if (!notified_) {
            failure_callbacks_.push_back(std::move(wake));
            return;
        }
    }
    wake();
}

void FailureMonitor::throw_failure(const std::string& otherwise) {
    Lock lock(channel_.mutex());
    channel_.wait_for_failure(lock);
    const auto& failure = channel_.failure(lock);
    throw CommError(failure ? failure->text : otherwise);
}

void FailureMonitor::run() noexcept {
    const auto timeout = channel_.options().heartbeat_timeout;
    Lock lock(channel_.mutex());
    TimePoint next_heartbeat = channel_.last_received(lock), awake_by = next_heartbeat;
    std::uint64_t reads = 0;
    while (!quit_) {
        const TimePoint now = Clock::now();
        // After this process was suspended, missing heartbeats do not mean that rank 0 has failed.
        if (now - awake_by > timeout / 4) channel_.reset_silence_timer(lock, now);
        const auto is_over = [&] {
            return channel_.is_disconnected(lock) || channel_.failure(lock);
        };
        if (now >= next_heartbeat) {
            next_heartbeat = now + interval_;
            AXLE_FAILPOINT("heartbeat: before it is sent");
            if (!is_over())
                channel_.send_heartbeat(lock, encode(calls_.activity(lock).heartbeat()));
        }
        if (const auto missing = calls_.take_missing(lock, now); missing && !is_over())
            channel_.send_unlocked(lock, encode(*missing));
        check_server(lock, now);
        if (channel_.failure(lock) && !notified_) {
            notify_failure(lock);
            continue;
        }
        const bool calls_read = channel_.is_read_by_calls(lock, reads);
        const bool over = is_over();
        awake_by = next_heartbeat;
        if (calls_read && !over) awake_by = std::min(awake_by, now + kReadPause);
        if (channel_.is_disconnected(lock) && !channel_.failure(lock))
            awake_by = std::min(awake_by, cause_deadline(lock));
        // poll() ignores descriptor -1.
        pollfd entries[] = {{quit_event_.descriptor(), POLLIN, 0},
                            {launcher_.descriptor(), POLLIN, 0},
                            {over ? -1 : channel_.failure_descriptor(), POLLIN, 0},
                            {over || calls_read ? -1 : channel_.descriptor(), POLLIN, 0}};
        lock.unlock();
        ::poll(entries, std::size(entries), milliseconds_until(awake_by));
        lock.lock();
        if (entries[1].revents != 0) read_launcher(lock);
        if (entries[3].revents != 0) channel_.receive_if_idle(lock);
    }
    if (channel_.failure(lock) && !notified_) notify_launcher(lock);
}

void FailureMonitor::read_launcher(Lock& lock) {
    for (const ChildEnd& end : launcher_.read()) {
        if (!ends_.emplace(end.rank, end).second || channel_.is_disconnected(lock) ||
            channel_.failure(lock))
            continue;
        channel_.send_unlocked(lock, encode(ChildEndReport{end.rank, end.signal, end.exit_code}));
    }
}

// Returns the time at which waiting for the launcher's report of the end of rank 0 stops.
TimePoint FailureMonitor::cause_deadline(const Lock& lock) const {
    const TimePoint at = channel_.disconnected_at(lock);
    const bool cause_expected = launcher_.is_open() && channel_.server().host == host_name();
    return cause_expected && !ends_.contains(0) ? at + kCauseOfDeath : at;
}

// Reports a failure if rank 0 has died or is frozen.
void FailureMonitor::check_server(const Lock& lock, TimePoint now) {
    if (channel_.failure(lock)) return;
    const Process& server = channel_.server();
    const Activity& activity = calls_.server_activity(lock);
    const bool disconnected = channel_.is_disconnected(lock);
    const auto end = ends_.find(0);
    if (end != ends_.end() || (disconnected && now >= cause_deadline(lock))) {
        const auto cause = end == ends_.end() ? std::optional<ChildEnd>() : end->second;
        return channel_.fail(
            lock, failure_of(server, false, activity, death_text(server, cause, activity.text())));
    }
    const auto silence = now - channel_.last_received(lock);
    if (disconnected || silence <= channel_.options().heartbeat_timeout) return;
    channel_.fail(lock, failure_of(server, true, activity, frozen_text(server, silence, activity)));
}

void FailureMonitor::notify_failure(Lock& lock) {
    notify_launcher(lock);
    notified_ = true;
    const auto callbacks = std::exchange(failure_callbacks_, {});
    lock.unlock();
    for (const auto& wake : callbacks) wake();
    lock.lock();
}

void FailureMonitor::notify_launcher(const Lock& lock) {
    const auto& failure = channel_.failure(lock);
    if (!channel_.is_for_launcher(lock) || !failure) return;
    // Without a failed rank, the launcher gets the last collective of this rank.
    const bool has_rank = failure->rank >= 0;
    const Activity& own = calls_.activity(lock);
    launcher_.write({.text = failure->text,
                     .rank = rank_,
                     .failed = failure->rank,
                     .op = has_rank ? failure->op : own.op(),
                     .sequence = has_rank ? failure->sequence : own.sequence(),
                     .pid = failure->pid,
                     .host = failure->host,
                     .is_running = failure->is_running});
}

}  // namespace axle::dist
