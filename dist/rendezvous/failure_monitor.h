// Private to dist: FailureMonitor, a background thread that keeps the control channel alive and
// detects failures.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dist/rendezvous/call_client.h"
#include "dist/rendezvous/control_channel.h"
#include "dist/transport/launcher_connection.h"
#include "dist/transport/socket.h"

namespace axle::dist {

// Implements the failure functions of Control. Its background thread sends heartbeats, checks the
// heartbeats of rank 0, exchanges failures with the launcher, and calls the failure callbacks. If
// the thread itself fails, for example because memory has run out, it reports this as a failure of
// the job. Thread-safe.
class FailureMonitor {
  public:
    FailureMonitor(ControlChannel& channel, CallClient& calls, LauncherConnection& launcher,
                   int rank);
    FailureMonitor(const FailureMonitor&) = delete;
    FailureMonitor& operator=(const FailureMonitor&) = delete;

    // Start and stop the background thread. stop() must be called before destruction.
    void start();
    void stop();

    std::optional<std::string> failure() const;
    void report(const std::string& text);
    void on_failure(std::function<void()> wake);
    [[noreturn]] void throw_failure(const std::string& otherwise);

  private:
    using Lock = ControlChannel::Lock;

    void run() noexcept;
    void run_once(Lock& lock);
    void fail_thread(Lock& lock, const std::exception& error) noexcept;
    void read_launcher(Lock& lock);
    void check_server(const Lock& lock, TimePoint now);
    void notify_failure(Lock& lock);
    void notify_launcher(const Lock& lock);
    TimePoint cause_deadline(const Lock& lock) const;

    ControlChannel& channel_;
    CallClient& calls_;
    LauncherConnection& launcher_;
    const int rank_;
    const std::chrono::milliseconds interval_;  // time between two heartbeats
    const Socket quit_event_;
    bool quit_ = false;
    std::map<int, ChildEnd> ends_;
    bool notified_ = false;
    TimePoint next_heartbeat_, awake_by_;
    std::uint64_t reads_ = 0;
    // The failure to report if the thread itself fails, and its Report message. Both are created in
    // advance, because the thread may fail when memory has run out.
    Failure thread_failure_;
    std::string thread_failure_report_;
    std::vector<std::function<void()>> failure_callbacks_;
    std::thread thread_;
};

}  // namespace axle::dist
