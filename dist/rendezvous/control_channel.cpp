#include "dist/rendezvous/control_channel.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "core/text/text.h"
#include "kernels/error.h"
#include "kernels/failpoint.h"

namespace axle::dist {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFailureDelay{1500};  // time to wait for the cause of an error
constexpr milliseconds kLeaveTimeout{500};
constexpr milliseconds kLongestSend{60000};

}  // namespace

ControlChannel::ControlChannel(Connected connected, const ControlOptions& options)
    : connected_(std::move(connected)),
      options_(options),
      failure_event_(make_event()),
      scratch_(kReceiveBytes),
      last_received_(Clock::now()) {}

void ControlChannel::start(std::function<void(const Lock&, const Frame&)> handler) {
    const Lock lock(mutex_);
    handler_ = std::move(handler);
    dispatch_all(lock);
}

void ControlChannel::leave(const std::string& reason) {
    if (disconnected_) return;
    try {
        AXLE_FAILPOINT("leave: before it is sent");
        const TimePoint deadline = Clock::now() + kLeaveTimeout;
        send_all(connected_.socket, encode(Leave{at_most(reason, kMaxText)}), deadline);
        // The remaining bytes are read first. If a socket is closed with unread bytes, the
        // connection is reset, and the peer may not receive the Leave message.
        ::shutdown(connected_.socket.descriptor(), SHUT_WR);
        while (wait_readable(connected_.socket, deadline) &&
               receive_some(connected_.socket, scratch_) >= 0) {
        }
    } catch (const CommError&) {  // the server has ended or does not read
    }
}

void ControlChannel::check(const Lock&) const {
    if (failure_) throw CommError(failure_->text);
}

bool ControlChannel::wait(Lock& lock, TimePoint deadline, const std::function<bool()>& ready) {
    while (!failure_ && !ready()) {
        if (Clock::now() >= deadline) return false;
        if (reading_ || disconnected_) {
            changed_.wait_until(lock, deadline);
            continue;
        }
        reading_ = true;
        ++reads_;
        lock.unlock();
        pollfd entries[] = {{descriptor(), POLLIN, 0}, {failure_descriptor(), POLLIN, 0}};
        ::poll(entries, std::size(entries), milliseconds_until(deadline));
        lock.lock();
        if (entries[0].revents != 0) receive(lock);
        reading_ = false;
        changed_.notify_all();
    }
    return true;
}

void ControlChannel::wait_for_failure(Lock& lock) {
    wait(lock, Clock::now() + kFailureDelay, [] { return false; });
}

void ControlChannel::send_frame(std::string_view frame) {
    try {
        const std::lock_guard sending(send_mutex_);
        send_all(connected_.socket, frame,
                 Clock::now() + std::min<milliseconds>(options_.timeout, kLongestSend));
    } catch (const SocketError& error) {
        Lock lock(mutex_);
        if (error.code == ETIMEDOUT)
            fail(lock, server_failure(true, " does not receive messages any more"));
        on_disconnect(lock);
        wait_for_failure(lock);
        check(lock);
        throw;
    }
}

void ControlChannel::fail(const Lock&, Failure failure, bool for_launcher) {
    if (failure_) return;
    failure_ = std::move(failure);
    for_launcher_ = for_launcher;
    signal_event(failure_event_);
    changed_.notify_all();
}

Failure ControlChannel::server_failure(bool is_running, const std::string& what) const {
    return failure_of(server(), is_running, {}, server().text() + what);
}

void ControlChannel::on_server_left(const Lock& lock) {
    disconnected_ = true;
    fail(lock, server_failure(false, " has left, and the job cannot continue without it"), false);
}

void ControlChannel::send_heartbeat(Lock& lock, std::string_view frame) {
    lock.unlock();
    bool gone = false;
    try {
        const std::unique_lock sending(send_mutex_, std::try_to_lock);
        if (sending) send_all(connected_.socket, frame, Clock::now() + options_.heartbeat_timeout);
    } catch (const SocketError&) {
        gone = true;
    }
    lock.lock();
    if (gone) on_disconnect(lock);
}

void ControlChannel::send_unlocked(Lock& lock, std::string_view frame) {
    lock.unlock();
    try {
        const std::lock_guard sending(send_mutex_);
        send_all(connected_.socket, frame, Clock::now() + options_.heartbeat_timeout);
    } catch (const SocketError&) {
    }
    lock.lock();
}

void ControlChannel::receive_if_idle(const Lock& lock) {
    if (!reading_ && !disconnected_) receive(lock);
}

bool ControlChannel::is_read_by_calls(const Lock&, std::uint64_t& reads) const {
    return reading_ || reads_ != std::exchange(reads, reads_);
}

void ControlChannel::receive(const Lock& lock) {
    const auto count = receive_some(connected_.socket, scratch_);
    if (count < 0) return on_disconnect(lock);
    if (count == 0) return;
    last_received_ = Clock::now();
    connected_.in.add({scratch_.data(), static_cast<std::size_t>(count)});
    dispatch_all(lock);
}

void ControlChannel::dispatch_all(const Lock& lock) {
    try {
        for (;;) {
            const auto frame = connected_.in.next(Sender::server);
            if (!frame) return;
            handler_(lock, *frame);
        }
    } catch (const CommError& error) {
        fail(lock, server_failure(true, str(": ", error.what())));
        on_disconnect(lock);
    }
}

void ControlChannel::on_disconnect(const Lock&) {
    if (disconnected_) return;
    disconnected_ = true;
    disconnected_at_ = Clock::now();
    signal_event(failure_event_);
    changed_.notify_all();
}

}  // namespace axle::dist
