// Private to dist: the server of rank 0. All processes of the job connect to it (control.h).
//
// The server uses one thread. It waits only in epoll, and never for a single client. Output that a
// client has not read is buffered. While a client has too much buffered output, its messages are
// not read.
//
// A connection is unauthenticated until its process has proven that it has the token.
// Unauthenticated connections have a separate limit, so they never use up the connections of ranks.
// When the limit is reached, a new connection replaces a random unauthenticated one. A rank can
// thus join, perhaps after several attempts, if its handshake is much faster than the replacement
// of all these connections. Strangers that only keep their connections open do not prevent this.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
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

namespace axle::dist {

// Returns the maximum number of unauthenticated connections, in addition to one for each rank that
// has not joined. It is an eighth of the files that this process may open, between 16 and 1024.
std::size_t max_unauthenticated();

// Returns the addresses at which the machine of rank 0 listens. A host name other than localhost
// can be mapped to a loopback address, which other machines can't reach. In a job on several
// machines, returns external addresses for such a host name. Throws CommError, whose message begins
// with `prefix`, if the name can't be resolved.
std::vector<Address> addresses_of_master(const char* prefix, const Environment& environment);

class Server {
  public:
    // Starts the server. It listens when the constructor returns. Throws CommError if no port of
    // ports_of() is free or MASTER_ADDR is not an address of this machine.
    Server(const Environment& environment, const ControlOptions& options);
    // Stops the server when all ranks have left, at most two seconds later (300 ms after a
    // failure).
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    const Address& address() const { return address_; }

  private:
    static constexpr std::size_t kNoPlace = static_cast<std::size_t>(-1);
    struct Connection {
        Socket socket;
        FrameReader in;
        std::string out;  // unsent output
        std::size_t sent = 0;
        std::uint32_t events = 0;  // the events for which epoll waits
        TimePoint last_received;
        TimePoint deadline;                // deadline of the handshake, or of closing
        std::size_t place = kNoPlace;      // index in unauthenticated_
        std::optional<JoinStart> started;  // the first message of the handshake
        bool ignored = false;              // whether received messages are discarded
        bool ending = false;               // whether to close the connection after `out` is sent
        Nonces nonces;
        int rank = -1;  // -1 before authentication, and after the rank has left
    };
    enum class State : std::uint8_t { not_joined, present, dying, gone };
    struct Member {
        State state = State::not_joined;
        Process process;
        bool has_launcher = false;
        Activity activity;
        std::uint64_t calls = 0;
        Connection* connection = nullptr;
        TimePoint dying_until;
    };

    // --- server_accept.cpp: connections before authentication
    void accept_some();
    void add_unauthenticated(Socket socket);
    bool drop_unauthenticated();
    void give_up_place(Connection& connection);
    void pause_listening(bool pause);

    // --- server.cpp: connections
    void run() noexcept;
    void loop();
    bool is_over();
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

    // --- server_time.cpp: timers
    void on_timer();
    void check_silence();
    void check_joined();
    void reset_silence_timers();
    void wake_at(TimePoint time) { next_timer_ = std::min(next_timer_, time); }

    // --- server_members.cpp: received messages

    // Handle a received message. serve() and serve_unauthenticated() return false if the connection
    // was closed, or will be closed when its output is sent.
    bool serve(Connection& connection, const Frame& frame);
    bool serve_unauthenticated(Connection& connection, const Frame& frame);
    void serve_member(Connection& connection, Member& member, const Frame& frame);
    void serve_store(Connection& connection, const Frame& frame);
    std::optional<JoinRefusal> reason_to_refuse(const JoinRequest& join_request) const;
    void accept_member(Connection& connection, const JoinRequest& join_request);
    void announce_call(Member& member, const CollectiveCall& call);
    void on_missing_rank(const Member& member, const MissingRank& absent);
    void on_call_timeout(const CallTimeout& timeout_error);
    void on_child_end(const ChildEndReport& end);
    void send_values(const std::vector<Waiter>& waiters, const std::string& key);
    void leave(Connection& connection, const std::string& why);
    void on_disconnect(Connection& connection);
    void report_death(Member& member);
    std::string state_text(const Member& member) const;
    void fail(const std::string& text, int rank = -1, bool is_running = false);
    Member& member_of(int rank) { return members_[static_cast<std::size_t>(rank)]; }

    const Environment environment_;
    const ControlOptions options_;
    const std::chrono::milliseconds interval_;  // time between two heartbeats
    const Key key_;
    const Process self_;

    Address address_;
    Socket listener_, epoll_, leave_event_;
    bool paused_ = false;
    std::unordered_map<int, std::unique_ptr<Connection>> connections_;  // connections by descriptor
    std::vector<Connection*> unauthenticated_;
    std::size_t max_unauthenticated_;  // size limit of unauthenticated_; decreases when ranks join
    std::minstd_rand random_;
    std::vector<char> scratch_;

    std::vector<Member> members_;
    std::vector<std::optional<ChildEnd>> ends_;  // reported exits by rank
    int present_ = 0;                            // number of connected members
    bool joined_ = false;
    bool failed_ = false;
    std::string failure_;
    KeyStore store_;
    Agreements agreements_;

    TimePoint now_, next_timer_, next_heartbeat_, join_deadline_, linger_deadline_;
    bool leaving_ = false;
    std::thread thread_;
};

}  // namespace axle::dist
