// Private to dist: Control, the control channel of a job. Rank 0 runs a server, and every process,
// including rank 0, has one connection to it. A background thread in each process keeps the
// connection alive.
//
// The channel carries only small messages: a key-value store, the agreement before each collective,
// heartbeats and failure reports. Tensor data uses other connections (engine.h).
//
// Handshake: client and server exchange nonces and HMACs. The HMACs prove that each side has the
// job's token. The client's HMAC also authenticates its rank, pid and host. The server accepts no
// other messages before the end of the handshake.
//
// Agreement: every member of a group announces the collective that it calls. When all members have
// announced it, the server sends them the counts of all members. If the calls differ, the server
// reports a failure to all ranks of the job.
//
// Heartbeats: client and server send a heartbeat with their current collective every second, or
// more often if a quarter of the heartbeat timeout is shorter. A client has failed if its
// connection ends without a Leave message, or if the server receives nothing from it within the
// heartbeat timeout. The server then reports a failure of the client's rank to all ranks of the
// job. In the same way, clients detect a failure of rank 0.
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
#include "dist/transport/proof.h"
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

// A collective call of one member of a group. All fields except `counts` must be equal on all
// members.
struct CollectiveCall {
    std::uint32_t group = 0;     // 0: all ranks; new_group() and split() assign others
    std::uint64_t sequence = 0;  // number of the call in its group, starting at 1
    Collective op = Collective::barrier;
    DType dtype = DType::u8;
    std::int64_t numel = 0;  // number of elements; 0 if it may differ between ranks
    int root = -1;           // rank in the group, or -1 for collectives without a root
    ReduceOp reduce_op = ReduceOp::sum;
    bool on_gpu = false;  // whether data is sent directly between GPUs
    // Sizes that may differ between ranks and are sent to all ranks. All ranks pass the same number
    // of sizes, at most kMaxCounts.
    std::vector<std::int64_t> counts = {};
};
inline constexpr std::size_t kMaxCounts = 4096;

struct ControlOptions {
    std::chrono::milliseconds timeout{}, join_timeout{}, heartbeat_timeout{};
};

// The control channel of one process. Thread-safe. After a failure of the job, the functions of the
// key-value store and of the agreement throw CommError with the text of the failure. note() does
// not throw.
class Control {
  public:
    // Joins the job. ProcessGroup::create() documents the arguments and errors.
    static std::unique_ptr<Control> join(const Environment& environment,
                                         const ControlOptions& options);
    // Leaves the job, with the reason set by set_leave_reason(). Later failures of other ranks do
    // not affect this rank. On rank 0, the server runs until all other ranks have left, at most two
    // seconds (300 ms after a failure).
    virtual ~Control() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    // Returns the address for connections from other ranks: the address of the network interface in
    // AXLE_SOCKET_IFNAME or GLOO_SOCKET_IFNAME. If neither variable is set, returns the local
    // address of the route to rank 0.
    virtual const std::string& local_address() const = 0;
    // Returns a key for one purpose. The key is the same on all ranks. It is derived from the job's
    // token, and is secret only if the token is secret.
    virtual Key key_for(std::string_view purpose) const = 0;

    // --- key-value store. Keys above 1 KiB and values above 16 MiB throw ValueError. set() and
    // add() throw CommError if the store would have more than 1 GiB, or if rank 0 does not reply
    // within the timeout.

    virtual void set(const std::string& key, std::string_view value) = 0;
    // Waits until the key is set and returns its value. Throws CommError after the timeout.
    virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
    // Adds `delta` to an integer value (initially 0) and returns the sum. Throws CommError if the
    // value is not an integer, or if the sum overflows.
    virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;

    // --- agreement on collectives

    // Defines the members of a group. Every member must call this function before its first
    // announce_call() for the group.
    virtual void open_group(std::uint32_t group, const std::vector<int>& ranks) = 0;
    // Announces a collective call of this rank. Does not wait.
    void announce_call(const CollectiveCall& call) {
        start_call(call, [] {});
    }
    // Calls `post`, which queues the collective, and then announces the call. If `post` throws, the
    // call is not announced, and its sequence number can be used again. The queued collective may
    // call wait_for_agreement() immediately. Throws ValueError for more than kMaxCounts counts,
    // before it calls `post`.
    virtual void start_call(const CollectiveCall& call, const std::function<void()>& post) = 0;
    // Waits until every member has made the same call. Returns the counts of all members, indexed
    // by rank of the group. Throws CommError on every rank if the calls differ. Throws CommError if
    // ranks did not make the call within the timeout; the text contains these ranks and their
    // activities. Must be called once for each announced call.
    virtual std::vector<std::vector<std::int64_t>> wait_for_agreement(std::uint32_t group,
                                                                      std::uint64_t sequence) = 0;
    // Sets the activity of this process, such as "all_reduce #12", for heartbeats and error
    // messages.
    virtual void note(std::string_view activity) = 0;

    // --- failures

    // Returns the text of the first failure that this process has received, or nullopt.
    virtual std::optional<std::string> failure() const = 0;
    // Reports a failure to all ranks. Unless the job has already failed, the calls of all ranks
    // throw CommError with `text`.
    virtual void report(const std::string& text) = 0;
    // Sets the reason why this rank leaves the job. Ranks that wait for this rank report the
    // reason.
    virtual void set_leave_reason(const std::string&) {}
    // Sets the reason why this rank makes no more calls. If it makes no call within two seconds,
    // ranks that wait for it throw CommError with the reason. "" removes the reason.
    virtual void set_missing_reason(const std::string&) {}
    // Registers a function that wakes other threads. The background thread calls `wake` once, when
    // a failure is received. If a failure has already been received, `wake` is called immediately.
    virtual void on_failure(std::function<void()> wake) = 0;
    // Throws the failure of the job. If none has been received, for example after an engine's
    // "connection reset", waits for a failure for a short time. If no failure is received, throws
    // `otherwise`.
    [[noreturn]] virtual void throw_failure(const std::string& otherwise) = 0;
};

}  // namespace axle::dist
