// Private to dist: serializes the messages between Client and Server.
//
// A frame is the length of its body (4 bytes), its kind (1 byte) and the body. Numbers are little
// endian. A body contains the fields of the message in order; a string or list is preceded by its
// length. Lengths from the network are checked against the limits below before memory is allocated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/rendezvous/control.h"
#include "dist/transport/proof.h"

namespace axle::dist {

// Limits in bytes, except kMaxRanks.
inline constexpr std::size_t kMaxKey = 1024;
inline constexpr std::size_t kMaxValue = 16 << 20;
inline constexpr std::size_t kMaxText = 16 << 10;  // maximum size of failure texts
inline constexpr std::size_t kMaxActivity = 256;
inline constexpr std::size_t kMaxHost = 255;
inline constexpr std::size_t kMaxRanks = 65536;
inline constexpr std::size_t kReceiveBytes = 64 << 10;  // size of the buffer of one receive call

inline constexpr std::uint32_t kProtocol = 0x34584c41;  // the characters "ALX4"

enum class Kind : std::uint8_t {
    // Messages of the handshake; see handshake.h.
    join_start,
    challenge,
    join_request,
    join_reply,
    join_refusal,
    // Messages to the server.
    set,
    get,
    cancel,
    add,
    open_group,
    announce_call,
    call_timeout,
    child_end,
    report,
    missing_rank,
    leave,      // sent in both directions
    heartbeat,  // sent in both directions
    // Messages from the server.
    all_joined,
    store_reply,
    value,
    agreement,
    failure,
};
inline constexpr Kind kLastKind = Kind::failure;
// Returns the maximum body size of a kind.
std::size_t max_body(Kind kind);

// The messages. In each message, fields() passes the fields in wire order to f. f reads or writes
// the fields.
struct JoinStart {
    static constexpr Kind kind = Kind::join_start;
    std::uint32_t protocol = kProtocol;
    Nonce nonce{};
    static void fields(auto& m, auto&& f) { f(m.protocol), f(m.nonce); }
};
struct Challenge {
    static constexpr Kind kind = Kind::challenge;
    std::uint32_t protocol = kProtocol;
    Nonce nonce{};
    static void fields(auto& m, auto&& f) { f(m.protocol), f(m.nonce); }
};
// A request to join, with a description of the process.
struct JoinRequest {
    static constexpr Kind kind = Kind::join_request;
    std::int32_t rank = 0, world_size = 1, restart_count = 0;
    std::int64_t pid = 0;
    std::string host;
    bool has_launcher = false;         // whether its launcher reports exits of processes
    std::int64_t join_timeout_ms = 0;  // remaining time of the join timeout
    Proof proof{};
    static void fields(auto& m, auto&& f) {
        f(m.rank), f(m.world_size), f(m.restart_count), f(m.pid), f(m.host, kMaxHost);
        f(m.has_launcher), f(m.join_timeout_ms), f(m.proof);
    }
};
struct JoinReply {
    static constexpr Kind kind = Kind::join_reply;
    std::int64_t pid = 0;
    std::string host;
    Proof proof{};
    static void fields(auto& m, auto&& f) { f(m.pid), f(m.host, kMaxHost), f(m.proof); }
};
struct JoinRefusal {
    static constexpr Kind kind = Kind::join_refusal;
    bool try_again = false;  // whether a retry may succeed, later or on another port
    std::string text;
    static void fields(auto& m, auto&& f) { f(m.try_again), f(m.text, kMaxText); }
};
struct Set {
    static constexpr Kind kind = Kind::set;
    std::uint64_t id = 0;
    std::string key, value;
    static void fields(auto& m, auto&& f) { f(m.id), f(m.key, kMaxKey), f(m.value, kMaxValue); }
};
struct Get {
    static constexpr Kind kind = Kind::get;
    std::uint64_t id = 0;
    std::string key;
    static void fields(auto& m, auto&& f) { f(m.id), f(m.key, kMaxKey); }
};
struct Cancel {
    static constexpr Kind kind = Kind::cancel;
    std::uint64_t id = 0;  // the id of the Get, Set or Add message
    static void fields(auto& m, auto&& f) { f(m.id); }
};
struct Add {
    static constexpr Kind kind = Kind::add;
    std::uint64_t id = 0;
    std::string key;
    std::int64_t delta = 0;
    static void fields(auto& m, auto&& f) { f(m.id), f(m.key, kMaxKey), f(m.delta); }
};
struct OpenGroup {
    static constexpr Kind kind = Kind::open_group;
    std::uint32_t group = 0;
    std::vector<std::int32_t> ranks;
    static void fields(auto& m, auto&& f) { f(m.group), f(m.ranks, kMaxRanks); }
};
struct AnnounceCall {
    static constexpr Kind kind = Kind::announce_call;
    CollectiveCall call;
    static void fields(auto& m, auto&& f) {
        auto& p = m.call;
        f(p.group), f(p.sequence), f(p.op, Collective::new_group), f(p.dtype, DType::c64);
        f(p.numel), f(p.root), f(p.reduce_op, ReduceOp::product), f(p.on_gpu);
        f(p.counts, kMaxCounts);
    }
};
// A report that the agreement on a collective has timed out on the sender's rank.
struct CallTimeout {
    static constexpr Kind kind = Kind::call_timeout;
    std::uint32_t group = 0;
    std::uint64_t sequence = 0;
    std::int64_t waited_ms = 0;
    static void fields(auto& m, auto&& f) { f(m.group), f(m.sequence), f(m.waited_ms); }
};
// A report that a process has ended (launcher_channel.h).
struct ChildEndReport {
    static constexpr Kind kind = Kind::child_end;
    std::int32_t rank = -1;
    std::int32_t signal = 0, exit_code = 0;
    static void fields(auto& m, auto&& f) { f(m.rank), f(m.signal), f(m.exit_code); }
};
struct Report {
    static constexpr Kind kind = Kind::report;
    std::string text;
    static void fields(auto& m, auto&& f) { f(m.text, kMaxText); }
};
// A report that the sender's rank makes no more calls, although it has not left.
struct MissingRank {
    static constexpr Kind kind = Kind::missing_rank;
    std::string why;
    // The number of calls of the rank. If the server has received another number of calls, it
    // ignores the report.
    std::uint64_t calls = 0;
    static void fields(auto& m, auto&& f) { f(m.why, kMaxText), f(m.calls); }
};
struct Leave {
    static constexpr Kind kind = Kind::leave;
    std::string why;  // reason for ranks that wait; may be empty
    static void fields(auto& m, auto&& f) { f(m.why, kMaxText); }
};
// A heartbeat, with the activity of the sender's rank (see activity.h).
struct Heartbeat {
    static constexpr Kind kind = Kind::heartbeat;
    Collective op = Collective::barrier;  // the last collective that the rank has called
    std::uint32_t group = 0;
    std::uint64_t sequence = 0;  // 0 before the first collective
    bool has_note = false;
    std::string note;
    static void fields(auto& m, auto&& f) {
        f(m.op, Collective::new_group), f(m.group), f(m.sequence), f(m.has_note);
        f(m.note, kMaxActivity);
    }
};
struct AllJoined {
    static constexpr Kind kind = Kind::all_joined;
    static void fields(auto&, auto&&) {}
};
// The reply to a Set message or an Add message.
struct StoreReply {
    static constexpr Kind kind = Kind::store_reply;
    std::uint64_t id = 0;
    std::int64_t sum = 0;
    std::string refused;  // error text, or "" on success
    static void fields(auto& m, auto&& f) { f(m.id), f(m.sum), f(m.refused, kMaxText); }
};
struct Value {
    static constexpr Kind kind = Kind::value;
    std::uint64_t id = 0;
    std::string value;
    static void fields(auto& m, auto&& f) { f(m.id), f(m.value, kMaxValue); }
};
struct Agreement {
    static constexpr Kind kind = Kind::agreement;
    std::uint32_t group = 0;
    std::uint64_t sequence = 0;
    std::uint32_t each = 0;            // number of counts per rank
    std::vector<std::int64_t> counts;  // counts of rank 0 of the group, then of rank 1, and so on
    static void fields(auto& m, auto&& f) {
        f(m.group), f(m.sequence), f(m.each), f(m.counts, kMaxRanks * kMaxCounts);
    }
};
struct Failure {
    static constexpr Kind kind = Kind::failure;
    std::string text;
    std::int32_t rank = -1;   // the failed rank, or -1 if no single rank has failed
    std::int64_t pid = 0;     // the pid of the rank, or 0 if the rank has not joined
    std::string host = {};    // the host of the rank, or "" if the rank has not joined
    bool is_running = false;  // whether the process has not ended, for example if it is frozen
    std::string op = {};      // the last collective that the failed rank has called, or ""
    std::uint64_t sequence = 0;
    static void fields(auto& m, auto&& f) {
        f(m.text, kMaxText), f(m.rank), f(m.pid), f(m.host, kMaxHost), f(m.is_running);
        f(m.op, kMaxActivity), f(m.sequence);
    }
};

// Returns the frame of a message. Strings that are longer than their limit are truncated.
template <class Message>
std::string encode(const Message& message);
// Returns the message in the body of a frame. Throws CommError if it is invalid.
template <class Message>
Message decode(std::string_view body);

enum class Sender : std::uint8_t { unauthenticated, member, server };

struct Frame {
    Kind kind{};
    std::string_view body;
};

// Splits a stream of bytes into frames.
class FrameReader {
  public:
    void add(std::string_view bytes);
    // Returns the next complete frame, valid until the next add(), or nullopt if no frame is
    // complete. Throws CommError for a kind that this sender must not send, and for a length above
    // the limit of the kind.
    std::optional<Frame> next(Sender sender);

  private:
    std::string bytes_;
    std::size_t begin_ = 0;  // index of the first unread byte
};

// Returns `text`, truncated to at most `size` bytes.
std::string at_most(std::string text, std::size_t size);

}  // namespace axle::dist
