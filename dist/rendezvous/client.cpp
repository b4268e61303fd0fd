// Client: received messages and the background thread.
#include "dist/rendezvous/client.h"

#include <algorithm>

#include <poll.h>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCauseOfDeath{300};  // for the launcher to report how rank 0 ended
// How long the background thread leaves the socket to calls, after a call has read it.
constexpr milliseconds kReadPause{50};

}  // namespace

void Client::receive(const Lock&) {
    const auto count = receive_some(socket_, scratch_);
    if (count < 0) return on_disconnect();
    if (count == 0) return;
    last_received_ = Clock::now();
    in_.add({scratch_.data(), static_cast<std::size_t>(count)});
    dispatch_all();
}

void Client::dispatch_all() {
    try {
        for (;;) {
            const auto frame = in_.next(Sender::server);
            if (!frame) return;
            dispatch(*frame);
        }
    } catch (const CommError& error) {
        fail({str(server_process_.text(), ": ", error.what()), 0, "", 0});
        on_disconnect();
    }
}

void Client::dispatch(const Frame& frame) {
    switch (frame.kind) {
        case Kind::agreement:
            return on_agreement(decode<Agreement>(frame.body));
        case Kind::heartbeat:
            return server_activity_.note(decode<Heartbeat>(frame.body).activity);
        case Kind::store_reply: {
            auto reply = decode<StoreReply>(frame.body);
            const auto awaited = replies_.find(reply.id);
            if (awaited != replies_.end())
                awaited->second = Reply{reply.sum, std::move(reply.refused)};
            return;
        }
        case Kind::value: {
            auto value = decode<Value>(frame.body);
            const auto awaited = replies_.find(value.id);
            if (awaited != replies_.end()) awaited->second = Reply{0, std::move(value.value)};
            return;
        }
        case Kind::failure:
            return fail(decode<Failure>(frame.body));
        case Kind::leave:
            disconnected_ = true;
            return fail(
                {server_process_.text() + " has left, and the job cannot continue without it", 0,
                 "", 0},
                false);
        default:
            return;
    }
}

void Client::on_agreement(Agreement agreement) {
    const auto group = groups_.find(agreement.group);
    const auto round = rounds_.find({agreement.group, agreement.sequence});
    if (group == groups_.end() || round == rounds_.end() ||
        agreement.counts.size() != group->second.size * agreement.each) {
        throw CommError("control: not a message: an unexpected agreement");
    }
    if (group->second.has_server) {
        server_activity_.announce_call(
            {.group = agreement.group, .sequence = agreement.sequence, .op = round->second.op});
    }
    round->second.agreement = std::move(agreement);
}

void Client::on_disconnect() {
    if (disconnected_) return;
    disconnected_ = true;
    disconnected_at_ = Clock::now();
    signal_event(failure_event_);
    changed_.notify_all();
}

void Client::fail(Failure failure, bool report_to_launcher) {
    if (failure_) return;
    failure_ = std::move(failure);
    report_to_launcher_ = report_to_launcher;
    signal_event(failure_event_);
    changed_.notify_all();
}

void Client::run() noexcept {
    Lock lock(mutex_);
    TimePoint next_heartbeat = last_received_, awake_by = last_received_;
    std::uint64_t reads = 0;
    while (!quit_) {
        const TimePoint now = Clock::now();
        // If this process was suspended, or the machine slept, rank 0 is not at fault.
        if (now - awake_by > options_.heartbeat_timeout / 4) last_received_ = now;
        if (now >= next_heartbeat) {
            next_heartbeat = now + interval_;
            send_heartbeat(lock);
        }
        if (missing_from_ && now >= *missing_from_) send_missing_rank(lock);
        check_server(now);
        if (failure_ && !notified_) {
            notify_failure(lock);
            continue;
        }
        const bool calls_read = reading_ || reads_ != std::exchange(reads, reads_);
        const bool over = disconnected_ || failure_;
        awake_by = next_heartbeat;
        if (calls_read && !over) awake_by = std::min(awake_by, now + kReadPause);
        if (disconnected_ && !failure_) awake_by = std::min(awake_by, cause_deadline());
        // poll() ignores descriptor -1.
        pollfd entries[] = {{quit_event_.descriptor(), POLLIN, 0},
                            {launcher_.descriptor(), POLLIN, 0},
                            {over ? -1 : failure_event_.descriptor(), POLLIN, 0},
                            {over || calls_read ? -1 : socket_.descriptor(), POLLIN, 0}};
        lock.unlock();
        ::poll(entries, std::size(entries), milliseconds_until(awake_by));
        lock.lock();
        if (entries[1].revents != 0) read_launcher(lock);
        if (entries[3].revents != 0 && !reading_ && !disconnected_) receive(lock);
    }
    if (failure_ && !notified_) notify_launcher();
}

void Client::send_heartbeat(Lock& lock) {
    if (disconnected_ || failure_) return;
    const std::string frame = encode(Heartbeat{activity_.text()});
    lock.unlock();
    bool gone = false;
    try {
        // A message that is being sent serves as a heartbeat.
        const std::unique_lock sending(send_mutex_, std::try_to_lock);
        if (sending) send_all(socket_, frame, Clock::now() + options_.heartbeat_timeout);
    } catch (const SocketError&) {
        gone = true;
    }
    lock.lock();
    if (gone) on_disconnect();
}

void Client::send_missing_rank(Lock& lock) {
    missing_from_.reset();
    if (disconnected_ || failure_) return;
    const std::string frame = encode(MissingRank{at_most(missing_reason_, kMaxText), calls_});
    lock.unlock();
    try {
        const std::lock_guard sending(send_mutex_);
        send_all(socket_, frame, Clock::now() + options_.heartbeat_timeout);
    } catch (const SocketError&) {  // the next read detects it too
    }
    lock.lock();
}

void Client::read_launcher(Lock& lock) {
    for (const ChildEnd& end : launcher_.read()) {
        if (!ends_.emplace(end.rank, end).second || disconnected_ || failure_) continue;
        lock.unlock();
        try {
            const std::lock_guard sending(send_mutex_);
            send_all(socket_, encode(ChildEndReport{end.rank, end.signal, end.exit_code}),
                     Clock::now() + options_.heartbeat_timeout);
        } catch (const SocketError&) {  // the next read detects it too
        }
        lock.lock();
    }
}

// Returns when to stop waiting for the launcher's report of how rank 0 died.
TimePoint Client::cause_deadline() const {
    const bool cause_expected = launcher_.is_open() && server_process_.host == host_name();
    return cause_expected && !ends_.contains(0) ? disconnected_at_ + kCauseOfDeath
                                                : disconnected_at_;
}

// Detects a dead or frozen rank 0.
void Client::check_server(TimePoint now) {
    if (failure_) return;
    const auto end = ends_.find(0);
    if (end != ends_.end() || (disconnected_ && now >= cause_deadline())) {
        const auto cause = end == ends_.end() ? std::optional<ChildEnd>() : end->second;
        return fail({death_text(server_process_, cause, server_activity_.text()), 0,
                     server_activity_.op(), server_activity_.sequence()});
    }
    const auto silence = now - last_received_;
    if (disconnected_ || silence <= options_.heartbeat_timeout) return;
    fail({frozen_text(server_process_, silence, server_activity_.text()), 0, server_activity_.op(),
          server_activity_.sequence()});
}

void Client::notify_failure(Lock& lock) {
    notify_launcher();
    notified_ = true;
    const auto wakes = std::exchange(failure_callbacks_, {});
    lock.unlock();
    for (const auto& wake : wakes) wake();
    lock.lock();
}

void Client::notify_launcher() {
    if (!report_to_launcher_ || !failure_) return;
    const Failure& failure = *failure_;
    const bool known = !failure.op.empty();
    launcher_.write({failure.text, rank_, failure.rank, known ? failure.op : activity_.op(),
                     known ? failure.sequence : activity_.sequence()});
}

}  // namespace axle::dist
