// Private to dist: MachineLink, a connection between the launchers of two machines.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <poll.h>

#include "dist/launch/machine_messages.h"
#include "dist/transport/launcher_channel.h"
#include "dist/transport/socket.h"

namespace axle::dist {

// A connection between two launchers that have proven that they have the job's token. Only finish()
// waits. The connection is lost if the peer closes it, sends an invalid message, sends nothing
// within the silence timeout, or leaves too many messages unread.
class MachineLink {
  public:
    MachineLink(Socket socket, std::chrono::milliseconds silence_timeout);

    bool is_lost() const { return !reason_.empty(); }
    // Returns the reason why the connection is lost, such as "the connection was closed", or "".
    const std::string& reason() const { return reason_; }

    // Sends a message without waiting. Does nothing if the connection is lost.
    void send(const MachineMessage& message);
    // Sends heartbeats and unsent messages. Returns the messages that were received.
    std::vector<MachineMessage> proceed();

    void add_poll_entry(std::vector<pollfd>& waited) const;
    // Returns the time at which proceed() must be called even if there is nothing to read or write.
    TimePoint next_timer() const { return next_heartbeat_; }

    // Waits until the peer has closed the connection, at most until the deadline. The peer can thus
    // receive all messages.
    void finish(TimePoint deadline);

  private:
    void write();
    void read(std::vector<MachineMessage>& messages);
    void lose(std::string reason);

    Socket socket_;
    LineReader lines_;
    std::string out_;  // messages that are not sent yet
    std::chrono::milliseconds silence_timeout_, interval_;
    TimePoint last_received_, next_heartbeat_;
    std::string reason_;
};

}  // namespace axle::dist
