// Implements the sending side of TcpConnection: frames in the queue, and data frames of large
// messages.
#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include <sys/socket.h>
#include <sys/uio.h>

#include "dist/transport/tcp_connection.h"
#include "dist/transport/tcp_poller.h"

namespace axle::dist {
namespace {

// The maximum number of frames that one system call sends.
constexpr std::size_t kFramesAtOnce = 16;

}  // namespace

void TcpConnection::queue(const FrameHeader& header, TcpMessage* message) {
    if (!write_failure_.empty()) return;
    queue_.push_back({header, message, message == nullptr ? nullptr : message->data_});
}

// Queues the next data frame, unless the queue already contains a data frame. Other frames thus
// wait for at most one data frame.
void TcpConnection::queue_data() {
    if (data_queued_ || bulk_.empty()) return;
    TcpMessage& message = *bulk_.front();
    const std::uint64_t length = std::min(message.bytes_ - message.moved_, kMaxData);
    queue_.push_back({{.kind = FrameKind::data,
                       .length = static_cast<std::uint32_t>(length),
                       .size = message.bytes_,
                       .id = message.id_},
                      &message,
                      message.data_ + message.moved_});
    data_queued_ = true;
}

void TcpConnection::queue_credit() {
    queue({.kind = FrameKind::credit, .size = consumed_});
    uncredited_ -= consumed_;
    consumed_ = 0;
}

// Sends frames until the queue is empty or the socket's buffer is full. If another thread is in
// flush(), that thread also sends the new frames.
void TcpConnection::flush(Lock& lock) {
    if (writing_ || write_blocked_ || !failure_.empty()) return;
    writing_ = true;
    while (write_some(lock)) {
    }
    writing_ = false;
    if (!failure_.empty() || !write_failure_.empty()) fail_sends();
    has_changed_ = has_changed_ || dropping_ > 0;
}

// Sends frames with one system call. Returns false if flush() must end.
bool TcpConnection::write_some(Lock& lock) {
    queue_data();
    if (queue_.empty()) return false;
    std::array<iovec, 2 * kFramesAtOnce> parts;
    std::size_t count = 0, wanted = 0;
    const auto add = [&](const void* data, std::uint64_t size, std::uint64_t sent) {
        if (sent >= size) return;
        auto* const bytes = static_cast<std::byte*>(const_cast<void*>(data));
        parts[count++] = {bytes + sent, size - sent};
        wanted += size - sent;
    };
    for (std::size_t i = 0; i < std::min(queue_.size(), kFramesAtOnce); ++i) {
        const Outgoing& frame = queue_[i];
        constexpr std::uint64_t kHeader = sizeof frame.header;
        add(&frame.header, kHeader, frame.sent);
        add(frame.data, frame.header.length, std::max(frame.sent, kHeader) - kHeader);
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    unlock(lock);
    const auto sent = ::sendmsg(descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    const int error = errno;
    lock.lock();
    if (sent > 0) pop_sent(static_cast<std::uint64_t>(sent));
    if (!failure_.empty()) return false;
    if (sent < 0 && error == EINTR) return true;
    if (sent < 0 && error != EAGAIN && error != EWOULDBLOCK) {
        // Data that the peer sent earlier can still be read. The reader detects the end of the
        // connection after this data.
        write_failure_ = std::generic_category().message(error);
        return false;
    }
    if (sent == static_cast<std::ptrdiff_t>(wanted)) return true;
    write_blocked_ = true;
    poller_.arm_write(*this);
    return false;
}

void TcpConnection::pop_sent(std::uint64_t sent) {
    while (sent > 0) {
        Outgoing& frame = queue_.front();
        const std::uint64_t step = std::min(sent, frame.size() - frame.sent);
        frame.sent += step;
        sent -= step;
        if (frame.sent < frame.size()) return;
        if (TcpMessage* const message = frame.message; message != nullptr) {
            message->moved_ += frame.header.length;
            const bool is_data = frame.header.kind == FrameKind::data;
            if (is_data) data_queued_ = false;
            if (message->moved_ == message->bytes_) {
                if (is_data) bulk_.pop_front();
                complete(*message);
            }
        }
        queue_.pop_front();
    }
}

void TcpConnection::on_writable() noexcept {
    Lock lock(mutex_);
    write_blocked_ = false;
    flush(lock);
    unlock(lock);
}

}  // namespace axle::dist
