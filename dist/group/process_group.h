// ProcessGroup: collective and point-to-point communication between processes that train together.
//
//     auto group = dist::ProcessGroup::create();          // reads the launcher's variables
//     group->all_reduce(gradient, dist::ReduceOp::mean);  // in place
//     auto work = group->all_reduce_async(bucket);        // overlaps with other computation
//     work.wait();
//
// Every process of the group calls the same collectives in the same order, with the same arguments
// unless its comment states otherwise. This is checked before data moves: if a process calls
// another op, or passes another dtype, size, root or reduction, every process throws CommError with
// the calls of all ranks. If a process dies, hangs or does not join, the other processes throw
// CommError with its rank, and the group can no longer be used.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "core/tree/tree.h"
#include "dist/environment/environment.h"

namespace axle::dist {

// The operation that combines the values of several processes. `mean` needs a floating dtype
// (DTypeError). f16 and bf16 are computed in f32 and rounded once (NCCL computes in the dtype and
// rounds at each step). bool supports only `max` (any) and `min` (all).
enum class ReduceOp : std::uint8_t { sum, mean, max, min, product };

// A handle to a running collective. Its tensors must not be read or written before wait() returns.
class Work {
  public:
    Work() = default;  // completed
    struct State;
    explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

    // Waits for completion; throws the collective's error, on every call. With NCCL the current
    // stream waits instead of the host.
    void wait();
    bool is_completed() const;

  private:
    std::shared_ptr<State> state_;
};

struct ProcessGroupOptions {
    // The backend: "gloo", "nccl", or "" for NCCL if every process has a GPU of its own, else Gloo.
    // CPU tensors always use Gloo, and so do GPU tensors if NCCL is not used. A process uses the
    // GPU with the number of its local rank. create() throws CommError if "nccl" is requested and
    // cannot be used.
    std::string backend = {};
    // Timeout of a collective. 0 uses AXLE_TIMEOUT_S, or 30 minutes if that is not set.
    std::chrono::milliseconds timeout{0};
    // Timeout for all ranks to join in create(). 0 uses `timeout`, at most 5 minutes.
    std::chrono::milliseconds join_timeout{0};
    // A process that sends no heartbeat for this long counts as hung.
    std::chrono::milliseconds heartbeat_timeout{8000};

    bool operator==(const ProcessGroupOptions&) const = default;
};

// A group may be used by one thread at a time: the order of collectives must be the same in every
// process, so threads that communicate concurrently need a group each. Tensors may be strided.
// Destroying the last handle of a group leaves the job; ranks that still wait for this one get a
// CommError.
class ProcessGroup {
  public:
    // Joins the job; blocks until all ranks have joined. Throws CommError if ranks are missing
    // (with their numbers), the port is in use, a rank is duplicated, or the token is wrong. A
    // single-process job opens no connections.
    static std::shared_ptr<ProcessGroup> create(const Environment& environment = read_environment(),
                                                ProcessGroupOptions options = {});
    // Returns a group of one process, which never communicates.
    static std::shared_ptr<ProcessGroup> alone();
    ~ProcessGroup();
    ProcessGroup(const ProcessGroup&) = delete;
    ProcessGroup& operator=(const ProcessGroup&) = delete;

    int rank() const;
    int size() const;
    // Returns "gloo", "nccl" or "none".
    const std::string& backend() const;
    // Returns the ranks of the members in the group that create() made.
    const std::vector<int>& global_ranks() const;

    // --- collectives in place
    void all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum) {
        all_reduce_async(x, op).wait();
    }
    Work all_reduce_async(const Tensor& x, ReduceOp op = ReduceOp::sum);
    // Reduces several tensors of one dtype and device in one message.
    void all_reduce(const std::vector<Tensor>& xs, ReduceOp op = ReduceOp::sum);
    // Overwrites x on every rank with the root's values.
    void broadcast(const Tensor& x, int root = 0) { broadcast_async(x, root).wait(); }
    Work broadcast_async(const Tensor& x, int root = 0);
    // Writes the result to the root's x; on other ranks x is unspecified afterwards.
    void reduce(const Tensor& x, int root = 0, ReduceOp op = ReduceOp::sum);

    // --- collectives with separate results; P is size()
    // Returns [P, ...]: x of shape [...] from every rank, in rank order.
    Tensor all_gather(const Tensor& x);
    Work all_gather_into_async(const Tensor& out, const Tensor& x);
    // Returns the tensors of all ranks, indexed by rank. The first dimension may differ between
    // ranks (0 is allowed); the other dimensions must be equal, and 0-d tensors are not allowed.
    std::vector<Tensor> all_gather_uneven(const Tensor& x);
    // Takes x of shape [P, ...] and returns this rank's part [...] of the reduction.
    Tensor reduce_scatter(const Tensor& x, ReduceOp op = ReduceOp::sum);
    Work reduce_scatter_into_async(const Tensor& out, const Tensor& x, ReduceOp op = ReduceOp::sum);
    // Returns out with out[i] = x[rank()] of rank i. Both have shape [P, ...].
    Tensor all_to_all(const Tensor& x);
    // Sends sends[i] to rank i and returns the tensors received, indexed by sender. The first
    // dimensions may differ; their sizes are exchanged first.
    std::vector<Tensor> all_to_all_uneven(const std::vector<Tensor>& sends);
    // gather() returns [P, ...] on the root and an undefined tensor elsewhere. scatter() splits the
    // root's x of shape [P, ...]; other ranks may pass an undefined tensor and get their shape and
    // dtype with the data.
    Tensor gather(const Tensor& x, int root = 0);
    Tensor scatter(const Tensor& x, int root = 0);

    // --- messages between two ranks
    // Messages with one tag between the same two ranks arrive in the order in which they are sent.
    // Shape and dtype must be equal on both sides (CommError on both).
    void send(const Tensor& x, int to, int tag = 0) { send_async(x, to, tag).wait(); }
    void recv(const Tensor& x, int from, int tag = 0) { recv_async(x, from, tag).wait(); }
    Work send_async(const Tensor& x, int to, int tag = 0);
    Work recv_async(const Tensor& x, int from, int tag = 0);

    void barrier();

    // Sets the reason sent to ranks that still wait for this one when it leaves the job. "" clears
    // it.
    void set_leave_reason(const std::string& why);
    // Sets the reason why this rank will not call another collective although it has not left. If
    // it calls none within two seconds, ranks that wait for it throw CommError with the reason. ""
    // cancels this, and so does the next collective.
    void set_missing_reason(const std::string& why);

    // --- values that a Tree can hold, of any size on each rank; tensors arrive on the CPU
    std::vector<Tree> all_gather_object(const Tree& object);
    std::vector<Tree> gather_object(const Tree& object, int root = 0);  // empty list on other ranks
    Tree broadcast_object(const Tree& object, int root = 0);
    Tree scatter_object(const std::vector<Tree>& objects, int root = 0);

    // --- subgroups
    // All ranks of this group call new_group() with the same `ranks`, which are ranks of this group
    // in the order of the new ones. Returns null on ranks that are not members.
    std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks);
    // Splits the group: ranks with the same color form a group, ordered by their ranks here.
    std::shared_ptr<ProcessGroup> split(int color);

    struct Impl;
    explicit ProcessGroup(std::unique_ptr<Impl> impl);

  private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace axle::dist
