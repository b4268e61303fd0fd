// Private to dist: Control, the control channel of a job. Rank 0 runs a server, every process (rank
// 0 too) holds one connection to it, and a background thread in each process keeps the connection
// alive.
//
// The channel carries only small messages: a key-value store, the agreement before each collective,
// heartbeats and failure reports. Tensor data uses other connections (engine.h).
//
// Handshake: nonces and HMACs in both directions prove that both sides have the job's token; then
// the client sends its rank, pid and host. The server accepts nothing else before that.
//
// Agreement: every member of a group announces the collective that it calls. When all have, the
// server sends each member the counts of all ranks, or reports to the whole job how the calls
// differ.
//
// Liveness: each side sends a heartbeat every second, with its current collective. If a connection
// ends without a Leave message, or is silent for the heartbeat timeout, the server reports a
// failure of that rank to the whole job.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/environment/environment.h"
#include "dist/reduce_op.h"
#include "kernels/dtype.h"

namespace axle::dist {

enum class Collective : std::uint8_t {
    all_reduce,
    broadcast,
    reduce,
    all_gather,
    all_gather_uneven,
    reduce_scatter,
    all_to_all,
    all_to_all_uneven,
    gather,
    scatter,
    barrier,
    all_gather_object,
    gather_object,
    broadcast_object,
    scatter_object,
    new_group,
};
const char* name_of(Collective op);

// A collective call of one member. All fields but `counts` must be equal on all members.
struct CollectiveCall {
    std::uint32_t group = 0;     // 0 is the group of all ranks; new_group assigns other numbers
    std::uint64_t sequence = 0;  // number of the call within its group, from 1
    Collective op = Collective::barrier;
    DType dtype = DType::u8;
    std::int64_t numel = 0;  // 0 if it may differ between ranks
    int root = -1;
    ReduceOp reduce_op = ReduceOp::sum;
    bool on_gpu = false;  // data is sent directly between GPUs
    // Sizes that may differ between ranks and are sent to all of them. At most kMaxCounts, and the
    // same number on each rank.
    std::vector<std::int64_t> counts = {};
};
inline constexpr std::size_t kMaxCounts = 4096;

struct ControlOptions {
    std::chrono::milliseconds timeout{}, join_timeout{}, heartbeat_timeout{};
};

// The interface of the control channel. Thread-safe. After a failure every call throws it as
// CommError.
class Control {
  public:
    // Joins the job. See ProcessGroup::create().
    static std::unique_ptr<Control> join(const Environment& environment,
                                         const ControlOptions& options);
    // Leaves the job, with the reason set by set_leave_reason(). Failures of other ranks after that
    // do not affect this one. Rank 0 continues serving until all other ranks have left, for at most
    // two seconds.
    virtual ~Control() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    // Returns the address for connections from other ranks: the address of the interface
    // AXLE_SOCKET_IFNAME (GLOO_SOCKET_IFNAME) if set, else the local address of the route to rank
    // 0.
    virtual const std::string& local_address() const = 0;

    // --- key-value store. Keys have at most 1 KiB, values at most 16 MiB (ValueError).
    virtual void set(const std::string& key, std::string_view value) = 0;
    // Waits until the key is set and returns its value. Throws CommError after the timeout.
    virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
    // Adds to an integer value (initially 0) and returns the sum.
    virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;

    // --- agreement on collectives
    // Defines the members of a group. Every member calls it before its first submit().
    virtual void open_group(std::uint32_t group, const std::vector<int>& ranks) = 0;
    // Announces a collective call of this rank. Does not wait.
    virtual void announce_call(const CollectiveCall& call) = 0;
    // Waits until every member has made the same call. Returns the counts of all members, by rank
    // of the group. Throws CommError if the calls differ (on every rank), or if ranks did not make
    // the call within the timeout; the text names those ranks and their activity.
    virtual std::vector<std::vector<std::int64_t>> wait_for_agreement(std::uint32_t group,
                                                                      std::uint64_t sequence) = 0;
    // Sets the activity of this process, such as "all_reduce #12", for heartbeats and error
    // messages.
    virtual void note(std::string_view activity) = 0;

    // --- failures
    // Returns the text of the first failure that this process has received, or nullopt.
    virtual std::optional<std::string> failure() const = 0;
    // Reports a failure to all ranks; their calls throw it.
    virtual void report(const std::string& text) = 0;
    // Sets the reason that is reported to ranks which still wait for this one after it has left.
    virtual void set_leave_reason(const std::string&) {}
    // Sets the reason why this rank makes no more calls. If it makes none within two seconds, ranks
    // that wait for it throw with the reason. "" cancels this.
    virtual void set_missing_reason(const std::string&) {}
    // Registers a function that is called once, from the background thread, when a failure is
    // received, so that it can wake other threads. It is called immediately if there is a failure
    // already.
    virtual void on_failure(std::function<void()> wake) = 0;
    // Throws the failure. If there is none yet, as after an engine's "connection reset", waits
    // briefly for it to arrive, and throws `otherwise` if it does not.
    [[noreturn]] virtual void throw_failure(const std::string& otherwise) = 0;
};

}  // namespace axle::dist
