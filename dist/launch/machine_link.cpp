#include "dist/launch/machine_link.h"

#include <algorithm>
#include <array>
#include <utility>

#include "dist/rendezvous/activity.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

// The maximum number of bytes that wait to be sent. If more bytes wait, because the peer does not
// read, the connection is lost.
constexpr std::size_t kMaxUnread = 4 * kMaxLauncherLine;
constexpr int kReadsAtOnce = 16;  // reads per call, limited in case a peer sends continuously

}  // namespace

MachineLink::MachineLink(Socket socket, std::chrono::milliseconds silence_timeout)
    : socket_(std::move(socket)),
      silence_timeout_(silence_timeout),
      interval_(std::clamp<std::chrono::milliseconds>(
          silence_timeout / 4, std::chrono::milliseconds(1), std::chrono::seconds(1))),
      last_received_(Clock::now()),
      next_heartbeat_(last_received_ + interval_) {}

void MachineLink::send(const MachineMessage& message) {
    if (is_lost()) return;
    out_ += to_line(message);
    write();
    if (out_.size() > kMaxUnread) lose("it does not read its messages");
}

std::vector<MachineMessage> MachineLink::proceed() {
    std::vector<MachineMessage> messages;
    if (is_lost()) return messages;
    const TimePoint now = Clock::now();
    // If this process was suspended, it could not receive messages. This does not mean that the
    // peer is lost.
    if (now - next_heartbeat_ > silence_timeout_ / 4) last_received_ = now;
    read(messages);
    write();
    if (now >= next_heartbeat_) {
        next_heartbeat_ = now + interval_;
        // Unsent messages have the same effect as a heartbeat when they are sent.
        if (out_.empty()) send(MachineHeartbeat());
    }
    if (!is_lost() && now - last_received_ > silence_timeout_)
        lose(str("it sent nothing for ", seconds_text(silence_timeout_)));
    return messages;
}

void MachineLink::add_poll_entry(std::vector<pollfd>& waited) const {
    if (is_lost()) return;
    const short events = out_.empty() ? POLLIN : POLLIN | POLLOUT;
    waited.push_back({socket_.descriptor(), events, 0});
}

void MachineLink::finish(TimePoint deadline) {
    while (!is_lost() && Clock::now() < deadline) {
        write();
        if (out_.empty()) ::shutdown(socket_.descriptor(), SHUT_WR);
        std::vector<pollfd> waited;
        add_poll_entry(waited);
        ::poll(waited.data(), waited.size(), milliseconds_until(deadline));
        // Unread data is read first, because close() with unread data would reset the connection.
        std::vector<MachineMessage> ignored;
        read(ignored);
    }
}

void MachineLink::write() {
    if (out_.empty() || is_lost()) return;
    const auto sent = send_some(socket_, out_);
    if (sent < 0) return;  // the next read detects that the connection is closed
    out_.erase(0, static_cast<std::size_t>(sent));
}

void MachineLink::read(std::vector<MachineMessage>& messages) {
    std::array<char, 4096> bytes;
    for (int reads = 0; reads < kReadsAtOnce; ++reads) {
        const auto size = receive_some(socket_, bytes);
        if (size < 0) return lose("the connection was closed");
        if (size == 0) return;
        last_received_ = Clock::now();
        lines_.add({bytes.data(), static_cast<std::size_t>(size)});
        for (;;) {
            const auto line = lines_.next();
            if (!line) break;
            const auto message = read_machine_message(*line);
            if (!message) return lose("it sent an invalid message");
            messages.push_back(*message);
        }
    }
}

void MachineLink::lose(std::string reason) {
    if (!is_lost()) reason_ = std::move(reason);
    socket_ = Socket();
}

}  // namespace axle::dist
