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
// protects their state, and the first failure of the job. A thread that waits for a reply reads the
// connection itself (one at a time) and passes on the replies for other threads. The background
// thread of FailureMonitor reads only while no call waits. Thus a reply wakes only one thread.
//
// Functions with a Lock parameter hold the mutex on entry and on return.
class ControlChannel {
  public:
    using Lock = std::unique_lock<std::mutex>;

    ControlChannel(Connected connected, const ControlOptions& options);
    ControlChannel(const ControlChannel&) = delete;
    ControlChannel& operator=(const ControlChannel&) = delete;

    // Passes every received frame to `handler`, which runs with the mutex locked. Starts with the
    // frames that arrived together with the end of the handshake.
    void start(std::function<void(const Lock&, const Frame&)> handler);
    // Sends Leave and closes the connection. The background thread must have ended.
    void leave(const std::string& reason);

    std::mutex& mutex() { return mutex_; }
    const ControlOptions& options() const { return options_; }
    const Process& server() const { return connected_.server; }
    const Address& server_address() const { return connected_.address; }
    const std::vector<ChildEnd>& child_ends() const { return connected_.ends; }

    // --- calls
    // Throws the failure, if there is one.
    void check(const Lock& lock) const;
    // Waits until ready() or until there is a failure. Returns false if the deadline passes first.
    bool wait(Lock& lock, TimePoint deadline, const std::function<bool()>& ready);
    // Waits briefly for a failure to be reported.
    void wait_for_failure(Lock& lock);
    // Sends a message, without the mutex. Throws the failure if the connection is lost.
    template <class Message>
    void send(const Message& message) {
        send_frame(encode(message));
    }
    void send_frame(std::string_view frame);

    // --- failures
    const std::optional<Failure>& failure(const Lock&) const { return failure_; }
    // Returns whether the launcher should get the failure.
    bool is_for_launcher(const Lock&) const { return for_launcher_; }
    // Records the first failure and wakes all waiting threads.
    void fail(const Lock& lock, Failure failure, bool for_launcher = true);
    // Called when the server has left the job.
    void on_server_left(const Lock& lock);

    // --- for the background thread
    // Sends a heartbeat unless another message is being sent, which serves as one.
    void send_heartbeat(Lock& lock, std::string_view frame);
    // Sends without the mutex; ignores a lost connection, which the next read detects too.
    void send_unlocked(Lock& lock, std::string_view frame);
    // Reads the connection unless a call reads it.
    void receive_if_idle(const Lock& lock);
    // Returns whether a call reads now, or has read since the last check of this counter.
    bool is_read_by_calls(const Lock& lock, std::uint64_t& reads) const;
    bool is_disconnected(const Lock&) const { return disconnected_; }
    TimePoint disconnected_at(const Lock&) const { return disconnected_at_; }
    TimePoint last_received(const Lock&) const { return last_received_; }
    void reset_silence_timer(const Lock&, TimePoint now) { last_received_ = now; }
    int descriptor() const { return connected_.socket.descriptor(); }
    // Returns a descriptor that becomes readable when there is a failure or the connection is lost.
    int failure_descriptor() const { return failure_event_.descriptor(); }

  private:
    void receive(const Lock& lock);
    void dispatch_all(const Lock& lock);
    void on_disconnect(const Lock& lock);

    Connected connected_;
    const ControlOptions options_;
    const Socket failure_event_;
    std::function<void(const Lock&, const Frame&)> handler_;
    std::mutex send_mutex_;  // never locked by a thread that waits for mutex_

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<char> scratch_;
    bool reading_ = false;     // a call polls the socket
    std::uint64_t reads_ = 0;  // number of calls that polled the socket
    bool disconnected_ = false;
    TimePoint disconnected_at_, last_received_;
    std::optional<Failure> failure_;
    bool for_launcher_ = false;
};

}  // namespace axle::dist
