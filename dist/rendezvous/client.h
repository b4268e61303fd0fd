// Private to dist: the client side of Control.
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
#include "dist/transport/launcher_line.h"
#include "dist/transport/socket.h"

namespace axle::inline v0::dist {

// The client. Whoever waits for an answer reads the connection itself, one at a time, and hands out
// what is for others; the thread reads while nobody waits. So an answer wakes one thread only.
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
    void propose(const Proposal& proposal) override;
    std::vector<std::vector<std::int64_t>> agreed(std::uint32_t group,
                                                  std::uint64_t sequence) override;
    void note(std::string_view activity) override;

    std::optional<std::string> failure() const override;
    void report(const std::string& text) override;
    void set_parting_words(const std::string& why) override;
    void set_absence(const std::string& why) override;
    void on_failure(std::function<void()> wake) override;
    [[noreturn]] void throw_failure(const std::string& otherwise) override;

  private:
    using Lock = std::unique_lock<std::mutex>;
    struct Reply {
        std::int64_t sum = 0;
        std::string text;  // a value, or why it was refused
    };
    struct Round {
        Collective op = Collective::barrier;
        std::optional<Agreement> agreement;
    };

    // --- control.cpp: calls. Those with a Lock hold the mutex on entry and on return.
    void check(const Lock& lock) const;
    // Until it is ready, or there is a failure; false if the deadline comes first.
    bool wait(Lock& lock, TimePoint deadline, const std::function<bool()>& ready);
    void wait_for_news(Lock& lock);
    template <class Message>
    void send(const Message& message) {
        send_frame(encode(message));
    }
    void send_frame(std::string_view frame);
    template <class Message>
    Reply call(Message message, std::chrono::milliseconds timeout, const std::string& overdue);

    // --- client.cpp: what is heard
    void receive(const Lock& lock);
    void dispatch_all();
    void dispatch(const Frame& frame);
    void on_agreement(Agreement agreement);
    void lose();
    void fail(Failure failure, bool for_launcher = true);

    // --- client.cpp: the thread
    void run() noexcept;
    void send_heartbeat(Lock& lock);
    void send_absence(Lock& lock);
    void read_launcher(Lock& lock);
    void judge(TimePoint now);
    void announce(Lock& lock);
    void tell_launcher();
    TimePoint burial() const;

    const int rank_, size_;
    const ControlOptions options_;
    const std::chrono::milliseconds interval_;  // of heartbeats
    LauncherLine launcher_;
    std::unique_ptr<Server> server_;  // of rank 0; outlives the connection to it
    std::string local_address_;
    Process server_process_;
    Socket socket_;
    const Socket quit_event_, news_event_;  // the latter for whoever polls when a failure is there
    std::mutex send_mutex_;                 // never waited for by whoever holds the other

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    FrameReader in_;
    std::vector<char> scratch_;
    bool reading_ = false;     // some call polls the socket
    std::uint64_t reads_ = 0;  // such calls
    bool lost_ = false;        // the connection
    bool quit_ = false;
    TimePoint lost_at_, heard_;
    Activity activity_, server_activity_;
    struct Group {
        std::size_t size = 0;
        bool has_server = false;
    };
    std::map<std::uint32_t, Group> groups_;
    std::uint64_t next_id_ = 1;
    std::map<std::uint64_t, std::optional<Reply>> replies_;  // awaited, by id
    std::map<std::pair<std::uint32_t, std::uint64_t>, Round> rounds_;
    std::map<int, ChildEnd> ends_;
    std::optional<Failure> failure_;
    std::string parting_words_;
    std::uint64_t proposals_ = 0;
    std::string absence_;                   // why
    std::optional<TimePoint> absent_from_;  // if it makes no proposal before
    bool for_launcher_ = false;
    bool announced_ = false;
    std::vector<std::function<void()>> wakes_;
    std::thread thread_;
};

}  // namespace axle::inline v0::dist
