// Private to dist: what rank 0 serves to all processes of the job. See control.h.
//
// One thread, which waits in epoll and never for one of its clients: what one doesn't take yet is
// kept for it, and nothing more is read from one that takes too little.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "dist/rendezvous/activity.h"
#include "dist/rendezvous/agreements.h"
#include "dist/rendezvous/control.h"
#include "dist/rendezvous/handshake.h"
#include "dist/rendezvous/key_store.h"
#include "dist/rendezvous/wire.h"
#include "dist/transport/socket.h"

namespace axle::inline v0::dist {

class Server {
  public:
    // Listens when it returns. CommError names a port in use.
    Server(const Environment& environment, const ControlOptions& options);
    // Goes on until all have left, but at most two seconds, and hardly where all have been told of
    // a failure.
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    const Address& address() const { return address_; }

  private:
    struct Connection {
        Socket socket;
        FrameReader in;
        std::string out;  // what it has not taken yet
        std::size_t sent = 0;
        std::uint32_t events = 0;  // that epoll watches for
        TimePoint heard;
        TimePoint deadline;  // of the handshake
        bool greeted = false;
        bool ignored = false;  // whatever it says
        bool ending = false;   // once it has taken everything
        Nonces nonces;
        int rank = -1;  // of a member; a stranger has none
    };
    enum class State : std::uint8_t { absent, present, dying, gone };
    struct Member {
        State state = State::absent;
        Process process;
        bool has_launcher = false;
        Activity activity;
        std::uint64_t proposals = 0;
        Connection* connection = nullptr;
        TimePoint dying_until;
    };

    // --- server.cpp: connections
    void run() noexcept;
    void loop();
    bool is_over();
    void accept_all();
    void pause_listening(bool pause);
    void handle(int descriptor, std::uint32_t events);
    void read(Connection& connection);
    void write(Connection& connection);
    void watch(Connection& connection);
    void drop(Connection& connection);
    template <class Message>
    void send(Connection& connection, const Message& message) {
        send_frame(connection, encode(message));
    }
    void send_frame(Connection& connection, std::string_view frame);
    void send_to_all(std::string_view frame);
    void end();

    // --- server_time.cpp: what happens by itself
    void on_timer();
    void check_silence();
    void check_joined();
    void forgive();
    void wake_at(TimePoint time) { next_timer_ = std::min(next_timer_, time); }

    // --- server_members.cpp: what is said
    // False if the connection is no more.
    bool serve(Connection& connection, const Frame& frame);
    bool serve_stranger(Connection& connection, const Frame& frame);
    void serve_member(Connection& connection, Member& member, const Frame& frame);
    void serve_store(Connection& connection, const Frame& frame);
    std::optional<Refusal> reason_to_refuse(const Identity& identity) const;
    void welcome(Connection& connection, const Identity& identity);
    void propose(Member& member, const Proposal& proposal);
    void on_absent(const Member& member, const Absent& absent);
    void on_overdue(const Overdue& overdue);
    void on_child_end(const ChildEnded& end);
    void answer(const std::vector<Waiter>& waiters, const std::string& key);
    void leave(Connection& connection, const std::string& why);
    void lose(Connection& connection);
    void bury(Member& member);
    void fail(const std::string& text, int rank = -1);
    Member& member_of(int rank) { return members_[static_cast<std::size_t>(rank)]; }

    const Environment environment_;
    const ControlOptions options_;
    const std::chrono::milliseconds interval_;  // of heartbeats
    const Key key_;
    const Process self_;

    Address address_;
    Socket listener_, epoll_, leave_event_;
    bool paused_ = false;
    std::unordered_map<int, std::unique_ptr<Connection>> connections_;  // by descriptor
    std::vector<char> scratch_;

    std::vector<Member> members_;
    std::vector<std::optional<ChildEnd>> ends_;  // by rank
    int present_ = 0;                            // members that are connected
    bool joined_ = false;
    bool failed_ = false;
    std::string failure_;
    KeyStore store_;
    Agreements agreements_;

    TimePoint now_, next_timer_, next_heartbeat_, join_deadline_, linger_deadline_;
    bool leaving_ = false;
    std::thread thread_;
};

}  // namespace axle::inline v0::dist
