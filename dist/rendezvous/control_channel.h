// Private to dist: ControlChannel, a process's connection to the server of rank 0.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/rendezvous/activity.h"
#include "dist/rendezvous/control.h"
#include "dist/rendezvous/join.h"
#include "dist/rendezvous/wire.h"
#include "dist/transport/socket.h"

namespace axle::dist {

// The connection that StoreClient, CallClient and FailureMonitor share, with the mutex that
// protects their state, and the first failure of the job.
//
// One of the threads that wait for replies reads the connection, and also handles the replies for
// other threads. The background thread of FailureMonitor reads only while no thread waits, so that
// a reply does not wake the background thread too.
//
// Functions with a Lock parameter must be called with the mutex locked, and return with the mutex
// locked.
class ControlChannel {
  public:
    using Lock = std::unique_lock<std::mutex>;

    ControlChannel(Connected connected, const ControlOptions& options);
    ControlChannel(const ControlChannel&) = delete;
    ControlChannel& operator=(const ControlChannel&) = delete;

    // Sets the function that is called with every received frame, with the mutex locked. Frames
    // that arrived together with the end of the handshake are handled immediately.
    void start(std::function<void(const Lock&, const Frame&)> handler);
    // Sends Leave, and waits at most 0.5 seconds until the server closes the connection. The
    // background thread must have ended.
    void leave(const std::string& reason);

    std::mutex& mutex() { return mutex_; }
    const ControlOptions& options() const { return options_; }
    const Process& server() const { return connected_.server; }
    const Address& server_address() const { return connected_.address; }
    const std::vector<ChildEnd>& child_ends() const { return connected_.ends; }

    // --- calls

    // Throws CommError if there is a failure.
    void check(const Lock& lock) const;
    // Waits until ready() returns true or a failure is recorded, and then returns true. Returns
    // false after the deadline.
    bool wait(Lock& lock, TimePoint deadline, const std::function<bool()>& ready);
    // Waits for a failure, at most 1.5 seconds.
    void wait_for_failure(Lock& lock);
    // Sends a message. The caller must not have locked the mutex. If the connection is lost, waits
    // at most 1.5 seconds for the failure of the job and throws it as CommError, or rethrows the
    // SocketError if no failure is received. If the server does not receive the message within the
    // timeout, at most 60 seconds, records this as the failure of the job and throws it.
    template <class Message>
    void send(const Message& message) {
        send_frame(encode(message));
    }
    void send_frame(std::string_view frame);

    // --- failures
    const std::optional<Failure>& failure(const Lock&) const { return failure_; }
    // Returns whether the failure must be sent to the launcher.
    bool is_for_launcher(const Lock&) const { return for_launcher_; }
    // Records the first failure and wakes all waiting threads.
    void fail(const Lock& lock, Failure failure, bool for_launcher = true);
    // Records a failure of the job, because the server has left the job.
    void on_server_left(const Lock& lock);

    // --- for the background thread

    // Sends a heartbeat. Does nothing while another thread sends a message: the receiver counts any
    // message as a heartbeat.
    void send_heartbeat(Lock& lock, std::string_view frame);
    // Sends a frame. The mutex is unlocked while the frame is sent. Ignores a lost connection,
    // because the next read detects it.
    void send_unlocked(Lock& lock, std::string_view frame);
    // Reads the connection unless another thread reads it.
    void receive_if_idle(const Lock& lock);
    // Returns whether a waiting thread reads the connection, or has read it since the previous call
    // with the same counter `reads`.
    bool is_read_by_calls(const Lock& lock, std::uint64_t& reads) const;
    bool is_disconnected(const Lock&) const { return disconnected_; }
    TimePoint disconnected_at(const Lock&) const { return disconnected_at_; }
    TimePoint last_received(const Lock&) const { return last_received_; }
    void reset_silence_timer(const Lock&, TimePoint now) { last_received_ = now; }
    int descriptor() const { return connected_.socket.descriptor(); }
    // Returns a descriptor that becomes readable after a failure, or when the connection is lost.
    int failure_descriptor() const { return failure_event_.descriptor(); }

  private:
    void receive(const Lock& lock);
    void dispatch_all(const Lock& lock);
    void on_disconnect(const Lock& lock);
    Failure server_failure(bool is_running, const std::string& what) const;

    Connected connected_;
    const ControlOptions options_;
    const Socket failure_event_;
    std::function<void(const Lock&, const Frame&)> handler_;
    std::mutex send_mutex_;  // never locked while the thread holds mutex_

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<char> scratch_;
    bool reading_ = false;     // whether a waiting thread polls the socket
    std::uint64_t reads_ = 0;  // number of times that waiting threads have polled the socket
    bool disconnected_ = false;
    TimePoint disconnected_at_, last_received_;
    std::optional<Failure> failure_;
    bool for_launcher_ = false;
};

}  // namespace axle::dist
