// Implements the receiving side of TcpConnection: reads frames and matches them with receives.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iterator>
#include <system_error>

#include <sys/socket.h>
#include <sys/uio.h>

#include "dist/transport/tcp_connection.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

// The number of calls of recvmsg() after which the poller's thread continues with other
// connections.
constexpr int kReadsAtOnce = 16;

[[noreturn]] void refuse(const std::string& what) {
    throw CommError(str("received an invalid message: ", what));
}

}  // namespace

// Reads received data with at most kReadsAtOnce system calls. Stops early when the message `until`,
// which can be nullptr, has ended.
void TcpConnection::read_some(Lock& lock, const TcpMessage* until) {
    for (int i = 0; i < kReadsAtOnce && receive_once(lock); ++i)
        if (until != nullptr && until->is_over()) return;
}

// Calls recvmsg() once. Returns whether the socket may contain more data.
bool TcpConnection::receive_once(Lock& lock) {
    if (!failure_.empty()) return false;
    // The rest of the payload is received directly into its memory. If another data frame of the
    // same message follows, only its header is received into the buffer.
    std::array<iovec, 2> parts;
    std::size_t count = 0, wanted = 0;
    const auto add = [&](std::byte* to, std::size_t size) {
        parts[count++] = {to, size};
        wanted += size;
    };
    if (payload_.left > 0) add(payload_.to, payload_.left);
    const bool continues =
        payload_.is_data && payload_.message->moved_ + payload_.length < payload_.message->bytes_;
    add(buffer_.data() + end_, continues ? sizeof(FrameHeader) : buffer_.size() - end_);
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    receiving_ = payload_.message;
    unlock(lock);
    const auto received = ::recvmsg(descriptor(), &message, MSG_DONTWAIT);
    const int error = errno;
    lock.lock();
    receiving_ = nullptr;
    has_changed_ = has_changed_ || dropping_ > 0;
    if (!failure_.empty()) return false;
    if (received < 0 && error == EINTR) return true;
    if (received < 0 && (error == EAGAIN || error == EWOULDBLOCK)) return false;
    if (received <= 0) {
        fail_locked(received == 0 ? "the peer closed the connection"
                                  : std::generic_category().message(error));
        return false;
    }
    try {
        consume(static_cast<std::uint64_t>(received));
    } catch (const std::exception& invalid) {  // invalid data, or out of memory
        fail_locked(invalid.what());
        return false;
    }
    flush(lock);
    return failure_.empty() && received == static_cast<std::ptrdiff_t>(wanted);
}

// Handles received bytes: first the bytes of the payload, then the bytes in the buffer.
void TcpConnection::consume(std::uint64_t received) {
    const std::uint64_t direct = std::min(received, payload_.left);
    end_ += received - direct;
    if (direct > 0) advance_payload(direct);
    while (failure_.empty()) {
        const std::uint64_t available = end_ - begin_;
        if (payload_.left > 0) {
            const std::uint64_t step = std::min(available, payload_.left);
            if (step == 0) break;
            std::memcpy(payload_.to, buffer_.data() + begin_, step);
            begin_ += step;
            advance_payload(step);
        } else {
            FrameHeader frame;
            if (available < sizeof frame) break;
            std::memcpy(&frame, buffer_.data() + begin_, sizeof frame);
            begin_ += sizeof frame;
            on_frame(frame);
        }
    }
    std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
              buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
    end_ -= begin_;
    begin_ = 0;
}

void TcpConnection::advance_payload(std::uint64_t bytes) {
    payload_.to += bytes;
    payload_.left -= bytes;
    if (payload_.left == 0) end_payload();
}

void TcpConnection::end_payload() {
    const Payload ended = payload_;
    payload_ = {};
    TcpMessage* const message = ended.message;
    if (message == nullptr) {
        ended.arrived->is_complete = true;
        TcpMessage* const taker = ended.arrived->taker;
        if (taker == nullptr) return;
        std::ranges::copy(ended.arrived->data, taker->data_);
        return_credit(taker->bytes_);
        arrived_.erase(ended.arrived);
        return complete(*taker);
    }
    message->moved_ += ended.length;
    if (message->moved_ < message->bytes_) return;
    if (ended.is_data) {
        std::erase(expected_, message);
    } else {
        return_credit(message->bytes_);
    }
    complete(*message);
}

void TcpConnection::on_frame(const FrameHeader& frame) {
    if (frame.length > 0 && frame.kind != FrameKind::eager && frame.kind != FrameKind::data)
        refuse(str("its kind has no data: its length is ", frame.length));
    switch (frame.kind) {
        case FrameKind::eager:
            return on_eager(frame);
        case FrameKind::announce:
            return on_announce(frame);
        case FrameKind::request:
            return on_request(frame);
        case FrameKind::grant:
            return on_grant(frame);
        case FrameKind::data:
            return on_data(frame);
        case FrameKind::credit:
            return on_credit(frame);
    }
    refuse(str("its kind is unknown: ", static_cast<int>(frame.kind)));
}

void TcpConnection::on_eager(const FrameHeader& frame) {
    uncredited_ += frame.length + kEagerCost;
    if (frame.size != frame.length || frame.size > kMaxEager)
        refuse(str("its size must be the number of its data bytes, and at most ", kMaxEager,
                   ": its size is ", frame.size, ", its data has ", frame.length, " bytes"));
    if (uncredited_ > kWindow)
        refuse(str("it needs more memory than agreed: small messages without credit need ",
                   uncredited_, " bytes, more than ", kWindow));
    TcpMessage* const message = take_posted(frame.slot);
    if (message != nullptr) {
        if (!is_same_size(*message, frame.size)) return set_failed(message);
        payload_ = {.to = message->data_,
                    .left = frame.length,
                    .length = frame.length,
                    .message = message,
                    .arrived = {},
                    .is_data = false};
    } else {
        Arrived& arrived = arrived_.emplace_back();
        arrived.slot = frame.slot;
        arrived.size = frame.size;
        arrived.is_eager = true;
        arrived.data.resize(frame.size);
        payload_ = {.to = arrived.data.data(),
                    .left = frame.length,
                    .length = frame.length,
                    .message = nullptr,
                    .arrived = std::prev(arrived_.end()),
                    .is_data = false};
    }
    if (frame.length == 0) end_payload();
}

void TcpConnection::on_announce(const FrameHeader& frame) {
    TcpMessage* const message = take_posted(frame.slot);
    if (message != nullptr) {
        if (!is_same_size(*message, frame.size)) return set_failed(message);
        return expect(*message, frame.id);
    }
    if (arrived_.size() >= kMaxWaiting) refuse(str("more than ", kMaxWaiting, " announcements"));
    Arrived& arrived = arrived_.emplace_back();
    arrived.slot = frame.slot;
    arrived.size = frame.size;
    arrived.id = frame.id;
}

void TcpConnection::on_request(const FrameHeader& frame) {
    const auto held = std::ranges::find_if(held_, [&](const TcpMessage* message) {
        return message->slot_ == frame.slot && message->bytes_ > kMaxEager;
    });
    if (held != held_.end()) {
        bulk_.push_back(*held);
        held_.erase(held);
        return;
    }
    const auto requests = std::ranges::find(requests_, frame.slot, &Requests::slot);
    if (requests == requests_.end()) {
        if (requests_.size() >= kMaxWaiting) refuse(str("more than ", kMaxWaiting, " requests"));
        requests_.push_back({frame.slot, 1});
    } else {
        if (requests->count >= kMaxWaiting) refuse(str("more than ", kMaxWaiting, " requests"));
        ++requests->count;
    }
}

void TcpConnection::on_grant(const FrameHeader& frame) {
    const auto held = std::ranges::find(held_, frame.id, &TcpMessage::id_);
    if (held == held_.end()) refuse(str("a grant without an announcement: id ", frame.id));
    bulk_.push_back(*held);
    held_.erase(held);
}

void TcpConnection::on_data(const FrameHeader& frame) {
    const auto found = std::ranges::find(expected_, frame.id, &TcpMessage::id_);
    if (found == expected_.end()) refuse(str("data that was not requested: id ", frame.id));
    TcpMessage* const message = *found;
    const std::uint64_t rest = message->bytes_ - message->moved_;
    const bool is_empty = frame.length == 0 && rest > 0;
    if (frame.size != message->bytes_ || frame.length > std::min(rest, kMaxData) || is_empty)
        refuse(str("its size must be the announced size, ", message->bytes_,
                   ", and its data must have from 1 to ", std::min(rest, kMaxData),
                   " bytes: its size is ", frame.size, ", its data has ", frame.length, " bytes"));
    payload_ = {.to = message->data_ + message->moved_,
                .left = frame.length,
                .length = frame.length,
                .message = message,
                .arrived = {},
                .is_data = true};
    if (frame.length == 0) end_payload();
}

void TcpConnection::on_credit(const FrameHeader& frame) {
    if (frame.size > eager_in_flight_)
        refuse(str("too much credit: ", frame.size, " bytes, but only ", eager_in_flight_,
                   " were sent without credit"));
    eager_in_flight_ -= frame.size;
}

// Removes and returns the receive with this slot that was posted first, or returns nullptr.
TcpMessage* TcpConnection::take_posted(std::uint64_t slot) {
    const auto found = std::ranges::find(posted_, slot, &TcpMessage::slot_);
    if (found == posted_.end()) return nullptr;
    TcpMessage* const message = *found;
    posted_.erase(found);
    return message;
}

// Matches a receive with an announced message, and asks the peer for its data unless the receive
// has already sent a request.
void TcpConnection::expect(TcpMessage& message, std::uint64_t id) {
    message.id_ = id;
    expected_.push_back(&message);
    if (!message.is_requested_) queue({.kind = FrameKind::grant, .id = id});
}

// Adds the size of a received small message to the unsent credit. Credit is sent when it reaches
// half of the window. Smaller credit is sent only together with a message.
void TcpConnection::return_credit(std::uint64_t size) {
    consumed_ += size + kEagerCost;
    if (consumed_ >= kWindow / 2) queue_credit();
}

}  // namespace axle::dist
