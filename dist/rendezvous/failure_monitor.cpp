#include "dist/rendezvous/failure_monitor.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include <poll.h>

#include "core/files/file.h"
#include "kernels/error.h"
#include "kernels/failpoint.h"
#include "kernels/thread.h"

namespace axle::dist {
namespace {

using std::chrono::milliseconds;

// The maximum time to wait for the launcher's report that rank 0 has ended.
constexpr milliseconds kCauseOfDeath{300};
// The time for which the background thread does not read the socket after a call has read it.
constexpr milliseconds kReadPause{50};

std::string text_of_thread_failure(int rank, const std::string& why) {
    return str("rank ", rank, ": the thread that detects failures has failed: ", why);
}

}  // namespace

FailureMonitor::FailureMonitor(ControlChannel& channel, CallClient& calls,
                               LauncherConnection& launcher, int rank)
    : channel_(channel),
      calls_(calls),
      launcher_(launcher),
      rank_(rank),
      interval_(std::clamp<milliseconds>(channel.options().heartbeat_timeout / 4, milliseconds(1),
                                         milliseconds(1000))),
      quit_event_(make_event()),
      thread_failure_{.text = text_of_thread_failure(rank, "out of memory")},
      thread_failure_report_(encode(Report{thread_failure_.text})) {
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
    } catch (const CommError&) {  // the job has already failed
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
    Lock lock(channel_.mutex());
    next_heartbeat_ = awake_by_ = channel_.last_received(lock);
    const auto attempt = [&](auto&& action) {
        try {
            action();
        } catch (const std::exception& error) {
            fail_thread(lock, error);
        }
    };
    while (!quit_) attempt([&] { run_once(lock); });
    if (channel_.failure(lock) && !notified_) attempt([&] { notify_launcher(lock); });
}

// Sends heartbeats, checks rank 0 and reports failures when they are due, then waits for the next
// event.
void FailureMonitor::run_once(Lock& lock) {
    const TimePoint now = Clock::now();
    // If this process was suspended, it could not receive heartbeats. This does not mean that rank
    // 0 has failed.
    if (now - awake_by_ > channel_.options().heartbeat_timeout / 4)
        channel_.reset_silence_timer(lock, now);
    const auto is_over = [&] { return channel_.is_disconnected(lock) || channel_.failure(lock); };
    if (now >= next_heartbeat_) {
        next_heartbeat_ = now + interval_;
        AXLE_FAILPOINT("heartbeat: before it is sent");
        if (!is_over()) channel_.send_heartbeat(lock, encode(calls_.activity(lock).heartbeat()));
    }
    if (const auto missing = calls_.take_missing(lock, now); missing && !is_over())
        channel_.send_unlocked(lock, encode(*missing));
    check_server(lock, now);
    if (channel_.failure(lock) && !notified_) return notify_failure(lock);
    const bool calls_read = channel_.is_read_by_calls(lock, reads_);
    const bool over = is_over();
    awake_by_ = next_heartbeat_;
    if (calls_read && !over) awake_by_ = std::min(awake_by_, now + kReadPause);
    if (channel_.is_disconnected(lock) && !channel_.failure(lock))
        awake_by_ = std::min(awake_by_, cause_deadline(lock));
    // The descriptor -1 makes poll() ignore an entry.
    pollfd entries[] = {{quit_event_.descriptor(), POLLIN, 0},
                        {launcher_.descriptor(), POLLIN, 0},
                        {over ? -1 : channel_.failure_descriptor(), POLLIN, 0},
                        {over || calls_read ? -1 : channel_.descriptor(), POLLIN, 0}};
    lock.unlock();
    ::poll(entries, std::size(entries), milliseconds_until(awake_by_));
    lock.lock();
    if (entries[1].revents != 0) read_launcher(lock);
    if (entries[3].revents != 0) channel_.receive_if_idle(lock);
}

// Reports an exception of the thread as a failure of the job to the other ranks. Does not allocate
// memory if memory has run out.
void FailureMonitor::fail_thread(Lock& lock, const std::exception& error) noexcept {
    if (!lock.owns_lock()) lock.lock();
    if (channel_.failure(lock)) return;
    if (dynamic_cast<const std::bad_alloc*>(&error) == nullptr) {
        try {
            Failure failure{.text = text_of_thread_failure(rank_, error.what())};
            std::string report = encode(Report{at_most(failure.text, kMaxText)});
            thread_failure_ = std::move(failure);
            thread_failure_report_ = std::move(report);
        } catch (const std::bad_alloc&) {  // the failure stays "out of memory"
        }
    }
    channel_.fail(lock, std::move(thread_failure_));
    try {
        if (!channel_.is_disconnected(lock)) channel_.send_unlocked(lock, thread_failure_report_);
    } catch (const std::exception&) {  // the other ranks detect that this rank has left
        if (!lock.owns_lock()) lock.lock();
    }
}

void FailureMonitor::read_launcher(Lock& lock) {
    for (const ChildEnd& end : launcher_.read()) {
        if (!ends_.emplace(end.rank, end).second || channel_.is_disconnected(lock) ||
            channel_.failure(lock))
            continue;
        channel_.send_unlocked(lock, encode(ChildEndReport{end.rank, end.signal, end.exit_code}));
    }
}

// Returns the deadline for the launcher's report that rank 0 has ended. If no report is expected,
// returns the time of the disconnection.
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
    notified_ = true;
    try {
        notify_launcher(lock);
    } catch (const std::bad_alloc&) {  // the launcher detects that this process ends
    }
    const auto callbacks = std::exchange(failure_callbacks_, {});
    lock.unlock();
    for (const auto& wake : callbacks) wake();
    lock.lock();
}

void FailureMonitor::notify_launcher(const Lock& lock) {
    const auto& failure = channel_.failure(lock);
    if (!channel_.is_for_launcher(lock) || !failure) return;
    // If no rank has caused the failure, the launcher gets the last collective of this rank.
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
