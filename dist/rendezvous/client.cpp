// What a client hears, and its thread.
#include "dist/rendezvous/client.h"

#include <algorithm>

#include <poll.h>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::inline v0::dist {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCauseOfDeath{300};  // for a launcher to say how rank 0 ended
// How long news may lie unread just after a call has read some itself.
constexpr milliseconds kGlance{50};

}  // namespace

void Client::receive(const Lock&) {
    const auto count = receive_some(socket_, scratch_);
    if (count < 0) return lose();
    if (count == 0) return;
    heard_ = Clock::now();
    in_.add({scratch_.data(), static_cast<std::size_t>(count)});
    dispatch_all();
}

void Client::dispatch_all() {
    try {
        for (;;) {
            const auto frame = in_.next(Speaker::server);
            if (!frame) return;
            dispatch(*frame);
        }
    } catch (const CommError& error) {
        fail({str(server_process_.text(), ": ", error.what()), 0, "", 0});
        lose();
    }
}

void Client::dispatch(const Frame& frame) {
    switch (frame.kind) {
        case Kind::agreement:
            return on_agreement(decode<Agreement>(frame.body));
        case Kind::heartbeat:
            return server_activity_.note(decode<Heartbeat>(frame.body).activity);
        case Kind::done: {
            auto done = decode<Done>(frame.body);
            const auto awaited = replies_.find(done.id);
            if (awaited != replies_.end())
                awaited->second = Reply{done.sum, std::move(done.refused)};
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
        case Kind::goodbye:
            lost_ = true;
            return fail(
                {server_process_.text() + " has left, and with it what keeps the others together",
                 0, "", 0},
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
        throw CommError("control: not a message: an agreement that nobody asked for");
    }
    if (group->second.has_server) {
        server_activity_.propose(
            {.group = agreement.group, .sequence = agreement.sequence, .op = round->second.op});
    }
    round->second.agreement = std::move(agreement);
}

void Client::lose() {
    if (lost_) return;
    lost_ = true;
    lost_at_ = Clock::now();
    signal_event(news_event_);
    changed_.notify_all();
}

void Client::fail(Failure failure, bool for_launcher) {
    if (failure_) return;
    failure_ = std::move(failure);
    for_launcher_ = for_launcher;
    signal_event(news_event_);
    changed_.notify_all();
}

void Client::run() noexcept {
    Lock lock(mutex_);
    TimePoint next_heartbeat = heard_, awake_by = heard_;
    std::uint64_t reads = 0;
    while (!quit_) {
        const TimePoint now = Clock::now();
        // This process was stopped itself, or its machine asleep: rank 0 is not to blame.
        if (now - awake_by > options_.heartbeat_timeout / 4) heard_ = now;
        if (now >= next_heartbeat) {
            next_heartbeat = now + interval_;
            send_heartbeat(lock);
        }
        if (absent_from_ && now >= *absent_from_) send_absence(lock);
        judge(now);
        if (failure_ && !announced_) {
            announce(lock);
            continue;
        }
        const bool calls_read = reading_ || reads_ != std::exchange(reads, reads_);
        const bool over = lost_ || failure_;
        awake_by = next_heartbeat;
        if (calls_read && !over) awake_by = std::min(awake_by, now + kGlance);
        if (lost_ && !failure_) awake_by = std::min(awake_by, burial());
        // The descriptor -1 is skipped.
        pollfd entries[] = {{quit_event_.descriptor(), POLLIN, 0},
                            {launcher_.descriptor(), POLLIN, 0},
                            {over ? -1 : news_event_.descriptor(), POLLIN, 0},
                            {over || calls_read ? -1 : socket_.descriptor(), POLLIN, 0}};
        lock.unlock();
        ::poll(entries, std::size(entries), milliseconds_until(awake_by));
        lock.lock();
        if (entries[1].revents != 0) read_launcher(lock);
        if (entries[3].revents != 0 && !reading_ && !lost_) receive(lock);
    }
    if (failure_ && !announced_) tell_launcher();
}

void Client::send_heartbeat(Lock& lock) {
    if (lost_ || failure_) return;
    const std::string frame = encode(Heartbeat{activity_.text()});
    lock.unlock();
    bool gone = false;
    try {
        // Whoever sends now is sign of life enough.
        const std::unique_lock sending(send_mutex_, std::try_to_lock);
        if (sending) send_all(socket_, frame, Clock::now() + options_.heartbeat_timeout);
    } catch (const SocketError&) {
        gone = true;
    }
    lock.lock();
    if (gone) lose();
}

void Client::send_absence(Lock& lock) {
    absent_from_.reset();
    if (lost_ || failure_) return;
    const std::string frame = encode(Absent{at_most(absence_, kMaxText), proposals_});
    lock.unlock();
    try {
        const std::lock_guard sending(send_mutex_);
        send_all(socket_, frame, Clock::now() + options_.heartbeat_timeout);
    } catch (const SocketError&) {  // the next read sees that, too
    }
    lock.lock();
}

void Client::read_launcher(Lock& lock) {
    for (const ChildEnd& end : launcher_.read()) {
        if (!ends_.emplace(end.rank, end).second || lost_ || failure_) continue;
        lock.unlock();
        try {
            const std::lock_guard sending(send_mutex_);
            send_all(socket_, encode(ChildEnded{end.rank, end.signal, end.exit_code}),
                     Clock::now() + options_.heartbeat_timeout);
        } catch (const SocketError&) {  // the next read sees that, too
        }
        lock.lock();
    }
}

// When to give up waiting for the cause of rank 0's death.
TimePoint Client::burial() const {
    const bool may_be_told = launcher_.is_there() && server_process_.host == host_name();
    return may_be_told && !ends_.contains(0) ? lost_at_ + kCauseOfDeath : lost_at_;
}

// Whether rank 0 is dead or frozen.
void Client::judge(TimePoint now) {
    if (failure_) return;
    const auto end = ends_.find(0);
    if (end != ends_.end() || (lost_ && now >= burial())) {
        const auto cause = end == ends_.end() ? std::optional<ChildEnd>() : end->second;
        return fail({death_of(server_process_, cause, server_activity_.text()), 0,
                     server_activity_.op(), server_activity_.sequence()});
    }
    const auto silence = now - heard_;
    if (lost_ || silence <= options_.heartbeat_timeout) return;
    fail({frost_of(server_process_, silence, server_activity_.text()), 0, server_activity_.op(),
          server_activity_.sequence()});
}

void Client::announce(Lock& lock) {
    tell_launcher();
    announced_ = true;
    const auto wakes = std::exchange(wakes_, {});
    lock.unlock();
    for (const auto& wake : wakes) wake();
    lock.lock();
}

void Client::tell_launcher() {
    if (!for_launcher_ || !failure_) return;
    const Failure& failure = *failure_;
    const bool known = !failure.op.empty();
    launcher_.write({failure.text, rank_, failure.rank, known ? failure.op : activity_.op(),
                     known ? failure.sequence : activity_.sequence()});
}

}  // namespace axle::inline v0::dist
