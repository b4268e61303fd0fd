// Private to dist: the messages between Control and the server of rank 0, as bytes.
//
// A frame is the length of its body (4 bytes), its kind (1 byte) and the body; numbers are little
// endian. A body lists the fields of a message, text with its length before it. Whatever comes from
// outside is held against the caps below before anything is allocated for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/rendezvous/control.h"

namespace axle::inline v0::dist {

inline constexpr std::size_t kMaxKey = 1024;
inline constexpr std::size_t kMaxValue = 16 << 20;
inline constexpr std::size_t kMaxText = 16 << 10;  // of a failure
inline constexpr std::size_t kMaxActivity = 256;
inline constexpr std::size_t kMaxHost = 255;
inline constexpr std::size_t kMaxRanks = 65536;

inline constexpr std::uint32_t kProtocol = 0x33584c41;  // "ALX3"

using Nonce = std::array<std::uint8_t, 32>;
using Proof = std::array<std::uint8_t, 32>;  // an HMAC

enum class Kind : std::uint8_t {
    // handshake.h
    hello,
    challenge,
    identity,
    welcome,
    refusal,
    // to the server
    set,
    get,
    cancel,
    add,
    open_group,
    propose,
    overdue,
    child_end,
    report,
    absent,
    goodbye,  // to both
    heartbeat,
    // from the server
    joined,
    done,
    value,
    agreement,
    failure,
};
inline constexpr Kind kLastKind = Kind::failure;
// The longest body of a kind.
std::size_t max_body(Kind kind);

// Each message shows its fields to f, which reads or writes them, in the order of the wire.
struct Hello {
    static constexpr Kind kind = Kind::hello;
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
// Who a process says it is.
struct Identity {
    static constexpr Kind kind = Kind::identity;
    std::int32_t rank = 0, world_size = 1, restart_count = 0;
    std::int64_t pid = 0;
    std::string host;
    bool has_launcher = false;         // ...which tells it how others on its machine end
    std::int64_t join_timeout_ms = 0;  // what is left of it
    Proof proof{};
    static void fields(auto& m, auto&& f) {
        f(m.rank), f(m.world_size), f(m.restart_count), f(m.pid), f(m.host, kMaxHost);
        f(m.has_launcher), f(m.join_timeout_ms), f(m.proof);
    }
};
struct Welcome {
    static constexpr Kind kind = Kind::welcome;
    std::int64_t pid = 0;
    std::string host;
    Proof proof{};
    static void fields(auto& m, auto&& f) { f(m.pid), f(m.host, kMaxHost), f(m.proof); }
};
struct Refusal {
    static constexpr Kind kind = Kind::refusal;
    bool try_again = false;  // later, or elsewhere
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
    std::uint64_t id = 0;  // of a Get
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
struct Propose {
    static constexpr Kind kind = Kind::propose;
    Proposal proposal;
    static void fields(auto& m, auto&& f) {
        auto& p = m.proposal;
        f(p.group), f(p.sequence), f(p.op, Collective::new_group), f(p.dtype, DType::c64);
        f(p.numel), f(p.root), f(p.reduce_op, ReduceOp::product), f(p.on_gpu);
        f(p.counts, kMaxCounts);
    }
};
// Waiting has taken too long.
struct Overdue {
    static constexpr Kind kind = Kind::overdue;
    std::uint32_t group = 0;
    std::uint64_t sequence = 0;
    std::int64_t waited_ms = 0;
    static void fields(auto& m, auto&& f) { f(m.group), f(m.sequence), f(m.waited_ms); }
};
// See launcher_channel.h.
struct ChildEnded {
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
// A process that still is there won't come to what others wait for.
struct Absent {
    static constexpr Kind kind = Kind::absent;
    std::string why;
    std::uint64_t proposals = 0;  // that it has made before; void if it has made another one since
    static void fields(auto& m, auto&& f) { f(m.why, kMaxText), f(m.proposals); }
};
struct Goodbye {
    static constexpr Kind kind = Kind::goodbye;
    std::string why;  // for those who still wait; may be empty
    static void fields(auto& m, auto&& f) { f(m.why, kMaxText); }
};
// From the server: what rank 0 is in.
struct Heartbeat {
    static constexpr Kind kind = Kind::heartbeat;
    std::string activity;
    static void fields(auto& m, auto&& f) { f(m.activity, kMaxActivity); }
};
struct Joined {
    static constexpr Kind kind = Kind::joined;
    static void fields(auto&, auto&&) {}
};
// What became of a Set or an Add.
struct Done {
    static constexpr Kind kind = Kind::done;
    std::uint64_t id = 0;
    std::int64_t sum = 0;
    std::string refused;  // why it wasn't done, or ""
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
    std::uint32_t each = 0;            // counts of each rank
    std::vector<std::int64_t> counts;  // by rank of the group
    static void fields(auto& m, auto&& f) {
        f(m.group), f(m.sequence), f(m.each), f(m.counts, kMaxRanks * kMaxCounts);
    }
};
struct Failure {
    static constexpr Kind kind = Kind::failure;
    std::string text;
    std::int32_t rank = -1;  // whom it is about, if it is about one
    std::string op;          // what that one was in, if that is known
    std::uint64_t sequence = 0;
    static void fields(auto& m, auto&& f) {
        f(m.text, kMaxText), f(m.rank), f(m.op, kMaxActivity), f(m.sequence);
    }
};

template <class Message>
std::string encode(const Message& message);
// CommError for bytes that are no such message.
template <class Message>
Message decode(std::string_view body);

enum class Speaker : std::uint8_t { stranger, member, server };

struct Frame {
    Kind kind{};
    std::string_view body;
};

// Frames out of the bytes of a stream.
class FrameReader {
  public:
    void add(std::string_view bytes);
    // The next whole frame, which is valid until the next add(), or nothing yet. CommError for a
    // kind or a length that this side of a connection never sends.
    std::optional<Frame> next(Speaker speaker);

  private:
    std::string bytes_;
    std::size_t begin_ = 0;  // of what is not taken yet
};

// The end of a text that is too long is cut off.
std::string at_most(std::string text, std::size_t size);

}  // namespace axle::inline v0::dist
