#include "dist/transport/tcp_connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "dist/transport/tcp_poller.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr std::size_t kBuffer = 16 << 10;
// The minimum credit that send() sends together with a message.
constexpr std::uint64_t kLeastCredit = 16 << 10;

}  // namespace

// Only messages that have not ended successfully must be removed from the connection. Other
// messages are in none of its lists and in no system call.
TcpMessage::~TcpMessage() {
    if (state() != State::done) connection_.drop(*this);
}

void TcpMessage::wait() { connection_.wait(*this); }

TcpConnection::TcpConnection(Socket socket, int peer, TcpOwner& owner, TcpPoller& poller)
    : socket_(std::move(socket)), peer_(peer), owner_(owner), poller_(poller), buffer_(kBuffer) {}

std::unique_ptr<TcpMessage> TcpConnection::send(const void* data, std::uint64_t bytes,
                                                std::uint64_t slot) {
    auto message = std::make_unique<TcpMessage>(
        *this, static_cast<std::byte*>(const_cast<void*>(data)), bytes, slot, true);
    Lock lock(mutex_);
    if (!failure_.empty() || !write_failure_.empty()) {
        message->state_ = TcpMessage::State::failed;
        throw_failure();
    }
    if (consumed_ >= kLeastCredit) queue_credit();
    if (bytes <= kMaxEager && eager_in_flight_ + bytes + kEagerCost <= kWindow) {
        eager_in_flight_ += bytes + kEagerCost;
        queue({.kind = FrameKind::eager,
               .length = static_cast<std::uint32_t>(bytes),
               .slot = slot,
               .size = bytes},
              message.get());
    } else {
        message->id_ = ++last_id_;
        queue({.kind = FrameKind::announce, .slot = slot, .size = bytes, .id = message->id_});
        if (bytes > kMaxEager && take_request(slot)) {
            bulk_.push_back(message.get());
        } else {
            held_.push_back(message.get());
        }
    }
    flush(lock);
    unlock(lock);
    return message;
}

std::unique_ptr<TcpMessage> TcpConnection::receive(void* data, std::uint64_t bytes,
                                                   std::uint64_t slot) {
    auto message =
        std::make_unique<TcpMessage>(*this, static_cast<std::byte*>(data), bytes, slot, false);
    Lock lock(mutex_);
    const auto arrived = std::ranges::find_if(arrived_, [&](const Arrived& one) {
        return one.slot == slot && one.taker == nullptr && (failure_.empty() || one.is_complete);
    });
    if (arrived != arrived_.end()) {
        match_arrived(arrived, *message);
        flush(lock);
    } else if (!failure_.empty()) {
        message->state_ = TcpMessage::State::failed;
        throw_failure();
    } else {
        // The request is sent with the next frame of this connection, or by wait().
        posted_.push_back(message.get());
        if (bytes > kMaxEager) {
            message->is_requested_ = true;
            queue({.kind = FrameKind::request, .slot = slot, .size = bytes});
        }
    }
    unlock(lock);
    return message;
}

// Matches an arrived message with the receive that was posted for it.
void TcpConnection::match_arrived(std::list<Arrived>::iterator arrived, TcpMessage& message) {
    if (!is_same_size(message, arrived->size)) {
        message.state_ = TcpMessage::State::failed;
        return;
    }
    if (!arrived->is_eager) {
        expect(message, arrived->id);
        arrived_.erase(arrived);
    } else if (arrived->is_complete) {
        std::ranges::copy(arrived->data, message.data_);
        return_credit(arrived->size);
        arrived_.erase(arrived);
        complete(message);
    } else {
        arrived->taker = &message;
    }
}

// Removes a request for a large message with this slot. Returns false if no request has this slot.
bool TcpConnection::take_request(std::uint64_t slot) {
    const auto found = std::ranges::find(requests_, slot, &Requests::slot);
    if (found == requests_.end()) return false;
    if (--found->count == 0) requests_.erase(found);
    return true;
}

void TcpConnection::wait(TcpMessage& message) {
    if (!message.is_over()) {
        const auto timeout = owner_.timeout();
        const TimePoint deadline = Clock::now() + timeout;
        Lock lock(mutex_);
        flush(lock);
        if (!message.is_over() && !message.is_send_ && !reading_)
            read_until_over(lock, message, deadline);
        const bool in_time = wait_for_change(lock, deadline, [&] { return message.is_over(); });
        if (!in_time) fail_locked(str("timed out after ", timeout.count(), " ms"));
        unlock(lock);
        if (!in_time) owner_.fail_all(str("the connection to rank ", peer_, " has timed out"));
    }
    if (message.state() == TcpMessage::State::done) return;
    const Lock lock(mutex_);
    throw_failure();
}

// Reads the connection in this thread until the message has ended or the deadline has passed.
void TcpConnection::read_until_over(Lock& lock, TcpMessage& message, TimePoint deadline) {
    reading_ = true;
    read_some(lock, &message);
    bool must_arm = std::exchange(missed_event_, false);
    if (!message.is_over()) {
        must_arm = true;
        unlock(lock);
        poller_.disarm_read(*this);
        lock.lock();
        while (!message.is_over() && Clock::now() < deadline) {
            unlock(lock);
            pollfd entry{descriptor(), POLLIN, 0};
            ::poll(&entry, 1, milliseconds_until(deadline));
            lock.lock();
            read_some(lock, &message);
        }
    }
    reading_ = false;
    missed_event_ = false;
    if (must_arm && failure_.empty()) poller_.arm_read(*this);
}

// Waits until another thread makes ready() true. Returns false after the deadline.
bool TcpConnection::wait_for_change(Lock& lock, TimePoint deadline,
                                    const std::function<bool()>& ready) {
    if (ready()) return true;
    if (has_changed_ && waiting_ > 0) changed_.notify_all();
    has_changed_ = false;
    ++waiting_;
    const bool is_ready = changed_.wait_until(lock, deadline, ready);
    --waiting_;
    return is_ready;
}

// Unlocks the mutex, and then notifies the threads that wait for a change. They thus do not have to
// wait for the mutex.
void TcpConnection::unlock(Lock& lock) {
    const bool must_notify = std::exchange(has_changed_, false) && waiting_ > 0;
    lock.unlock();
    if (must_notify) changed_.notify_all();
}

void TcpConnection::drop(TcpMessage& message) noexcept {
    Lock lock(mutex_);
    if (!message.is_over()) fail_locked("a message was dropped before its end");
    ++dropping_;
    wait_for_change(lock, TimePoint::max(),
                    [&] { return message.is_send_ ? !writing_ : receiving_ != &message; });
    --dropping_;
    unlock(lock);
}

void TcpConnection::complete(TcpMessage& message) {
    message.state_.store(TcpMessage::State::done, std::memory_order_release);
    has_changed_ = true;
}

// Returns whether the sizes are equal. Makes the connection fail if they differ. Called before any
// data is written to the memory of the receive.
bool TcpConnection::is_same_size(const TcpMessage& receive, std::uint64_t sent) {
    if (receive.bytes_ == sent) return true;
    fail_locked(str("the sizes of a message differ: rank ", peer_, " sends ", sent,
                    " bytes, but this rank receives ", receive.bytes_, " bytes"));
    return false;
}

void TcpConnection::fail(const std::string& reason) noexcept {
    Lock lock(mutex_);
    // After fail(), even messages that have arrived completely cannot be received.
    for (Arrived& arrived : arrived_) arrived.is_complete = false;
    fail_locked(reason);
    unlock(lock);
}

// Shuts the connection down, and makes messages that have not ended fail. Messages that have
// arrived completely can still be received. Does nothing if the connection has already failed.
void TcpConnection::fail_locked(std::string_view reason) noexcept {
    if (!failure_.empty()) return;
    try {
        failure_ = write_failure_.empty() ? reason : write_failure_;
    } catch (const std::bad_alloc&) {
        failure_ = "out of memory";  // short enough to need no memory allocation
    }
    ::shutdown(descriptor(), SHUT_RDWR);
    fail_sends();
    for (TcpMessage* const message : posted_) set_failed(message);
    for (TcpMessage* const message : expected_) set_failed(message);
    for (const Arrived& arrived : arrived_) set_failed(arrived.taker);
    set_failed(payload_.message);
    payload_ = {};  // the payload's message may be destroyed after this call
    posted_.clear();
    expected_.clear();
}

// Makes all unfinished sends fail. Does nothing while a thread is in flush(). At its end, flush()
// calls this function, because it is then known which messages were sent completely.
void TcpConnection::fail_sends() {
    if (writing_) return;
    for (const Outgoing& frame : queue_) set_failed(frame.message);
    for (TcpMessage* const message : bulk_) set_failed(message);
    for (TcpMessage* const message : held_) set_failed(message);
    queue_.clear();
    bulk_.clear();
    held_.clear();
}

void TcpConnection::set_failed(TcpMessage* message) {
    if (message == nullptr) return;
    message->state_.store(TcpMessage::State::failed, std::memory_order_release);
    has_changed_ = true;
}

void TcpConnection::throw_failure() const {
    throw CommError(str("tcp: connection to rank ", peer_,
                        " failed: ", failure_.empty() ? write_failure_ : failure_));
}

void TcpConnection::on_readable() noexcept {
    Lock lock(mutex_);
    if (reading_) {
        missed_event_ = true;
        return;
    }
    reading_ = true;
    read_some(lock, nullptr);
    reading_ = false;
    if (failure_.empty()) poller_.arm_read(*this);
    unlock(lock);
}

void TcpConnection::close_writing() noexcept { ::shutdown(descriptor(), SHUT_WR); }

// Returns whether the socket can be closed without losing data. If unread data is in the socket
// when it is closed, or arrives later, the system resets the connection. Data that the peer's
// system has not received is then lost. Therefore this function discards received data, and returns
// false until all sent data has arrived or the connection has ended. On a loopback connection, data
// has arrived when it is sent.
bool TcpConnection::is_flushed() noexcept {
    for (;;) {
        const auto count =
            receive_some(socket_, {reinterpret_cast<char*>(buffer_.data()), buffer_.size()});
        if (count < 0) return true;
        if (count == 0) break;
    }
    int waiting = 0;
    const bool is_local = own_address(socket_).is_loopback();
    return ::ioctl(descriptor(), is_local ? SIOCOUTQNSD : SIOCOUTQ, &waiting) != 0 || waiting == 0;
}

}  // namespace axle::dist
