// Private to dist: TcpPoller, the thread that reads and writes the connections of a TcpTransport.
#pragma once

#include <thread>

#include "dist/transport/socket.h"

namespace axle::dist {

class TcpConnection;

// Calls TcpConnection::on_readable() and on_writable(). After such a call, the connection is not
// watched for the same event until it is armed again. A thread that waits for a message can thus
// read the connection itself without waking this thread. All functions are thread-safe.
class TcpPoller {
  public:
    TcpPoller();
    ~TcpPoller();
    TcpPoller(const TcpPoller&) = delete;
    TcpPoller& operator=(const TcpPoller&) = delete;

    // Starts to watch a connection for received data. The connection must exist until join().
    // Throws SocketError if the system can't watch it.
    void add(TcpConnection& connection);
    void arm_read(TcpConnection& connection);
    void disarm_read(TcpConnection& connection);
    void arm_write(TcpConnection& connection);

    // Stops the thread. Does not wait for its end.
    void stop() noexcept { signal_event(stop_event_); }
    // Ends the thread and waits for its end.
    void join() noexcept;

  private:
    void run() noexcept;

    // Connections are registered in two epoll instances, because reading and writing are armed
    // independently. `reads_` contains `writes_`.
    const Socket reads_, writes_, stop_event_;
    std::thread thread_;
};

}  // namespace axle::dist
