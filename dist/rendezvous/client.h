// Private to dist: Client, the implementation of Control.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dist/rendezvous/activity.h"
#include "dist/rendezvous/control.h"
#include "dist/rendezvous/server.h"
#include "dist/rendezvous/wire.h"
#include "dist/transport/launcher_connection.h"
#include "dist/transport/socket.h"

namespace axle::dist {

// A process's connection to the server. A thread that waits for a reply reads the connection itself
// (one at a time) and distributes the replies for other threads. The background thread reads only
// while no call waits. Thus a reply wakes only one thread.
class Client final : public Control {
  public:
    Client(const Environment& environment, const ControlOptions& options);
    ~Client() override;
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    const std::string& local_address() const override { return local_address_; }

    void set(const std::string& key, std::string_view value) override;
    std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
    std::int64_t add(const std::string& key, std::int64_t delta) override;

    void open_group(std::uint32_t group, const std::vector<int>& ranks) override;
    void announce_call(const CollectiveCall& call) override;
    std::vector<std::vector<std::int64_t>> wait_for_agreement(std::uint32_t group,
                                                              std::uint64_t sequence) override;
    void note(std::string_view activity) override;

    std::optional<std::string> failure() const override;
    void report(const std::string& text) override;
    void set_leave_reason(const std::string& why) override;
    void set_missing_reason(const std::string& why) override;
    void on_failure(std::function<void()> wake) override;
    [[noreturn]] void throw_failure(const std::string& otherwise) override;

  private:
    using Lock = std::unique_lock<std::mutex>;
    struct Reply {
        std::int64_t sum = 0;
        std::string text;  // a value, or the error text
    };
    struct Round {
        Collective op = Collective::barrier;
        std::optional<Agreement> agreement;
    };

    // --- control.cpp: calls. Functions with a Lock parameter hold the mutex on entry and on
    // return.
    void check(const Lock& lock) const;
    // Waits until ready() or until there is a failure. Returns false if the deadline passes first.
    bool wait(Lock& lock, TimePoint deadline, const std::function<bool()>& ready);
    void wait_for_failure(Lock& lock);
    template <class Message>
    void send(const Message& message) {
        send_frame(encode(message));
    }
    void send_frame(std::string_view frame);
    template <class Message>
    Reply request(Message message, std::chrono::milliseconds timeout,
                  const std::string& timeout_error);

    // --- client.cpp: received messages
    void receive(const Lock& lock);
    void dispatch_all();
    void dispatch(const Frame& frame);
    void on_agreement(Agreement agreement);
    void on_disconnect();
    void fail(Failure failure, bool report_to_launcher = true);

    // --- client.cpp: the background thread
    void run() noexcept;
    void send_heartbeat(Lock& lock);
    void send_missing_rank(Lock& lock);
    void read_launcher(Lock& lock);
    void check_server(TimePoint now);
    void notify_failure(Lock& lock);
    void notify_launcher();
    TimePoint cause_deadline() const;

    const int rank_, size_;
    const ControlOptions options_;
    const std::chrono::milliseconds interval_;  // of heartbeats
    LauncherConnection launcher_;
    std::unique_ptr<Server> server_;  // only on rank 0; outlives the connection to it
    std::string local_address_;
    Process server_process_;
    Socket socket_;
    const Socket quit_event_,
        failure_event_;      // news_event_ wakes polling threads when a failure is known
    std::mutex send_mutex_;  // never locked by a thread that waits for mutex_

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    FrameReader in_;
    std::vector<char> scratch_;
    bool reading_ = false;       // a call polls the socket
    std::uint64_t reads_ = 0;    // number of calls that polled the socket
    bool disconnected_ = false;  // the connection ended
    bool quit_ = false;
    TimePoint disconnected_at_, last_received_;
    Activity activity_, server_activity_;
    struct Group {
        std::size_t size = 0;
        bool has_server = false;
    };
    std::map<std::uint32_t, Group> groups_;
    std::uint64_t next_id_ = 1;
    std::map<std::uint64_t, std::optional<Reply>> replies_;  // pending requests, by id
    std::map<std::pair<std::uint32_t, std::uint64_t>, Round> rounds_;
    std::map<int, ChildEnd> ends_;
    std::optional<Failure> failure_;
    std::string leave_reason_;
    std::uint64_t calls_ = 0;
    std::string missing_reason_;             // why this rank makes no more calls
    std::optional<TimePoint> missing_from_;  // when to send it, unless a call is made before
    bool report_to_launcher_ = false;
    bool notified_ = false;
    std::vector<std::function<void()>> failure_callbacks_;
    std::thread thread_;
};

}  // namespace axle::dist
