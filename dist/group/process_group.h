// ProcessGroup: collectives and messages between the processes of a training job.
//
//     auto group = dist::ProcessGroup::create();          // reads the launcher's variables
//     group->all_reduce(gradient, dist::ReduceOp::mean);  // in place
//     auto work = group->all_reduce_async(bucket);        // overlaps with other computation
//     work.wait();
//
// All processes of the group must call the same collectives in the same order, with the same
// arguments unless a comment states otherwise. The calls are compared before data is sent (with
// NCCL, while data is sent): if a process calls another collective, or passes another dtype, size,
// root or reduction, all processes throw CommError with the two different calls. If a process dies,
// hangs or does not join, the other processes throw CommError with its rank. The group can no
// longer be used after these errors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/memory/owning_ptr.h"
#include "core/system/milliseconds.h"
#include "core/tensor.h"
#include "core/tree/tree.h"
#include "dist/environment/environment.h"
#include "dist/reduce_op.h"

namespace axle::dist {

// A handle to a running collective or message. The tensors of the call must not be read or written
// before wait() returns.
class Work {
  public:
    Work() = default;  // a collective that is completed
    struct State;
    explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

    // Waits for completion. Each call throws the collective's error, if there is one. For a
    // collective of NCCL, the current stream waits, not the host.
    void wait();
    // Returns whether the work has ended, perhaps with an error. Does not wait.
    bool is_completed() const;

  private:
    std::shared_ptr<State> state_;
};

struct ProcessGroupOptions {
    // The backend: "tcp", "nccl", "mpi" or "" (the default).
    // - "" selects the value of AXLE_BACKEND. If this variable is not set, most collectives on GPU
    //   tensors use NCCL if each process has NCCL and its own GPU. Everything else is sent over
    //   TCP.
    // - "mpi" sends everything over MPI (docs/clusters.md).
    // - "gloo", PyTorch's backend for CPU tensors, means "tcp".
    // - "nccl" requires NCCL. A process uses the GPU whose index is its local rank modulo the
    //   number of GPUs.
    //
    // create() throws CommError if "nccl" or "mpi" is requested and can't be used. It throws
    // ValueError for other names, and for "nccl" if this build has no NCCL support.
    std::string backend = {};
    // The timeout of a collective or message. If 0, the timeout is AXLE_TIMEOUT_S (in seconds), or
    // 30 minutes if this variable is not set.
    Milliseconds timeout{0};
    // The timeout for all ranks to join in create(). If 0, it is the smaller of `timeout` and 5
    // minutes.
    Milliseconds join_timeout{0};
    // The time without a heartbeat after which a process is reported as hung.
    Milliseconds heartbeat_timeout{8000};

    bool operator==(const ProcessGroupOptions&) const = default;
};

// A group of processes. Used by one thread at a time. Threads that communicate concurrently need
// one group each, because the order of collectives must be the same on all processes. Tensors may
// be strided.
//
// Invalid arguments throw before any communication. UsageError is thrown for undefined tensors, and
// for outputs that require a gradient while ops are recorded, that are sharded, or whose elements
// share memory. DeviceError is thrown for meta tensors and for tensors on different devices, and
// IndexError for ranks out of range. Dtypes and shapes that do not match throw DTypeError and
// ShapeError. For collectives over NCCL, UsageError is also thrown during graph capture, and
// DeviceError for a tensor on another GPU. The process leaves the job when its last handle to a
// group of the job is destroyed. Ranks that wait for it then throw CommError.
class ProcessGroup {
  public:
    // Joins the job and waits until all ranks have joined. Throws CommError if ranks are missing
    // (the message lists them), if rank 0 can't be reached or can't listen at its address and port,
    // if two processes have the same rank, or if tokens, world sizes or versions of Axle differ.
    // Throws ValueError for an invalid backend, AXLE_TIMEOUT_S, AXLE_SOCKET_IFNAME or
    // GLOO_SOCKET_IFNAME. A job with one process opens no connections.
    static std::shared_ptr<ProcessGroup> create(const Environment& environment = read_environment(),
                                                ProcessGroupOptions options = {});
    // Returns a group of one process. It never communicates.
    static std::shared_ptr<ProcessGroup> alone();
    ~ProcessGroup();
    ProcessGroup(const ProcessGroup&) = delete;
    ProcessGroup& operator=(const ProcessGroup&) = delete;

    int rank() const;
    int size() const;
    // Returns "tcp", "nccl" or "mpi", or "none" for a group of one process.
    const std::string& backend() const;
    // Returns the ranks of the members in the group returned by create().
    const std::vector<int>& global_ranks() const;

    // --- collectives in place
    // Overwrites x on every rank with the reduction of the tensors x of all ranks.
    void all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum) {
        all_reduce_async(x, op).wait();
    }
    Work all_reduce_async(const Tensor& x, ReduceOp op = ReduceOp::sum);
    // Reduces several tensors of the same dtype and device in one collective. Does nothing for an
    // empty list.
    void all_reduce(const std::vector<Tensor>& xs, ReduceOp op = ReduceOp::sum);
    // Overwrites x on every rank with the root's values.
    void broadcast(const Tensor& x, int root = 0) { broadcast_async(x, root).wait(); }
    Work broadcast_async(const Tensor& x, int root = 0);
    // Writes the reduction to x on the root. On the other ranks, the values of x are undefined
    // after the call.
    void reduce(const Tensor& x, int root = 0, ReduceOp op = ReduceOp::sum);

    // --- collectives with separate results; P is size()

    // Returns a tensor [P, ...] with the tensors x of shape [...] of all ranks, in rank order.
    Tensor all_gather(const Tensor& x);
    // Writes the tensors x of all ranks, in rank order, to `out`. `out` must have the dtype and the
    // device of x, and P times the number of elements.
    Work all_gather_into_async(const Tensor& out, const Tensor& x);
    // Returns the tensors of all ranks, indexed by rank. The first dimension may differ between
    // ranks (0 is allowed); the other dimensions must be equal (CommError), and 0-d tensors are not
    // allowed (ShapeError).
    std::vector<Tensor> all_gather_uneven(const Tensor& x);
    // Reduces tensors x of shape [P, ...] and returns row rank() of the result, of shape [...].
    Tensor reduce_scatter(const Tensor& x, ReduceOp op = ReduceOp::sum);
    // Writes part rank() of the reduction of x to `out`. x must have the dtype and the device of
    // `out`, and P times the number of elements.
    Work reduce_scatter_into_async(const Tensor& out, const Tensor& x, ReduceOp op = ReduceOp::sum);
    // Returns a tensor of the shape of x, [P, ...]. Row i is row rank() of the x of rank i.
    Tensor all_to_all(const Tensor& x);
    // Sends sends[i] to rank i and returns the received tensors, indexed by sender. The first
    // dimensions may differ. The other dimensions must be equal in `sends` (ShapeError) and on all
    // ranks (CommError). 0-d tensors are not allowed (ShapeError). Throws ValueError unless there
    // is one tensor for each rank.
    std::vector<Tensor> all_to_all_uneven(const std::vector<Tensor>& sends);
    // gather() returns a tensor [P, ...] on the root and an undefined tensor on the other ranks.
    // scatter() returns row rank() of the root's x of shape [P, ...], on x's device on the root and
    // on the CPU on the other ranks. Only the root must pass a defined tensor to scatter().
    Tensor gather(const Tensor& x, int root = 0);
    Tensor scatter(const Tensor& x, int root = 0);

    // --- messages between two ranks

    // Send or receive a tensor. Messages with the same tag between the same two ranks arrive in
    // order. If the shapes or dtypes of the two tensors differ, recv() throws CommError, and the
    // group can no longer be used. Throws ValueError for this process's own rank and for a negative
    // tag. Over MPI, wait() throws ValueError for a tag above the maximum of the implementation,
    // and the group can no longer be used.
    void send(const Tensor& x, int to, int tag = 0) { send_async(x, to, tag).wait(); }
    void recv(const Tensor& x, int from, int tag = 0) { recv_async(x, from, tag).wait(); }
    Work send_async(const Tensor& x, int to, int tag = 0);
    Work recv_async(const Tensor& x, int from, int tag = 0);

    // --- barriers, and reasons for missing calls

    // Waits until all ranks of the group have called barrier().
    void barrier();

    // Sets the reason that ranks receive if they wait for this rank when it leaves the job. ""
    // removes the reason.
    void set_leave_reason(const std::string& why);
    // Sets the reason why this rank makes no more calls although it has not left the job. If it
    // calls no collective within two seconds, ranks that wait for it throw CommError with the
    // reason. The next collective, or a call with "", removes the reason.
    void set_missing_reason(const std::string& why);

    // --- collectives on Trees, which may differ between ranks; received tensors are on the CPU.
    // Throw ValueError for a tree deeper than kMaxTreeDepth.

    // Returns the objects of all ranks, indexed by rank.
    std::vector<Tree> all_gather_object(const Tree& object);
    // Returns the objects of all ranks on the root, and an empty list on the other ranks.
    std::vector<Tree> gather_object(const Tree& object, int root = 0);
    // Returns the object of the root.
    Tree broadcast_object(const Tree& object, int root = 0);
    // Returns element rank() of the root's list. Throws ValueError on the root unless its list has
    // one object for each rank; the lists of the other ranks are ignored.
    Tree scatter_object(const std::vector<Tree>& objects, int root = 0);

    // --- subgroups

    // Returns a group of some ranks of this group; ranks[i] becomes rank i of the new group.
    // Returns nullptr on ranks that are not members. All ranks must pass the same `ranks`
    // (CommError). Throws ValueError if `ranks` is empty or has duplicates, and IndexError for a
    // rank out of range.
    std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks);
    // Splits the group; all ranks must call this function. Ranks with the same color form a new
    // group, in the order of their ranks in this group.
    std::shared_ptr<ProcessGroup> split(int color);

    struct Impl;
    explicit ProcessGroup(OwningPtr<Impl> impl);

  private:
    OwningPtr<Impl> impl_;
};

}  // namespace axle::dist
