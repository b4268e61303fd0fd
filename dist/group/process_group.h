// ProcessGroup: what several processes say to each other while they train together.
//
//     auto group = dist::ProcessGroup::create();  // as the launcher says; else alone
//     group->all_reduce(gradient, dist::ReduceOp::mean);  // in place
//     auto work = group->all_reduce_async(bucket);  // ... and go on
//     work.wait();
//
// Every process of the group calls the same collectives in the same order, with the same arguments
// where a comment doesn't say otherwise. That is checked before any data moves: a process that
// calls another op, or with another dtype, size, root or reduction, makes every process throw
// CommError with what each of them called. A process that dies, freezes, or does not come makes the
// others throw CommError with its rank; the group is then of no more use.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "core/tree/tree.h"
#include "dist/environment/environment.h"

namespace axle::inline v0::dist {

// How values of several processes become one. mean is of floating dtypes alone (DTypeError). f16
// and bf16 are computed in f32 and rounded once (by NCCL: in their own type, rounded each time);
// bool has max (any) and min (all) alone.
enum class ReduceOp : std::uint8_t { sum, mean, max, min, product };

// A collective under way. What it reads and writes must not be touched before wait() returns.
class Work {
  public:
    Work() = default;  // done
    struct State;
    explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

    // Throws what went wrong, each time. For tensors on a GPU with an engine of its own (NCCL) the
    // current stream waits, not the host.
    void wait();
    bool is_completed() const;

  private:
    std::shared_ptr<State> state_;
};

struct ProcessGroupOptions {
    // "gloo", "nccl", or "" for NCCL where every process has a GPU to itself and Gloo elsewhere.
    // Tensors on the CPU always go through Gloo, and those on a GPU through it where there is no
    // NCCL. A process's GPU is the one of its local rank. CommError where NCCL is asked for and
    // can't be used.
    std::string backend = {};
    // Longest wait for the others in a collective; 0: AXLE_TIMEOUT_S, else half an hour.
    std::chrono::milliseconds timeout{0};
    // Longest wait for everybody to come at the beginning; 0: the timeout, but at most 5 minutes.
    std::chrono::milliseconds join_timeout{0};
    // A process that shows no sign of life for so long counts as frozen.
    std::chrono::milliseconds heartbeat_timeout{8000};

    bool operator==(const ProcessGroupOptions&) const = default;
};

// Collectives may be called from several threads only where each uses a group of its own: their
// order must be the same in every process. Strided tensors are allowed everywhere. Destroying the
// last handle of a group says goodbye to the others; those that still wait for it get a CommError.
class ProcessGroup {
  public:
    // Blocks until everybody has come. CommError names the ranks that did not, a port in use, a
    // rank that there is twice, or a token that is not the job's. Without other processes nothing
    // is opened and nobody is asked.
    static std::shared_ptr<ProcessGroup> create(const Environment& environment = read_environment(),
                                                ProcessGroupOptions options = {});
    static std::shared_ptr<ProcessGroup> alone();
    ~ProcessGroup();
    ProcessGroup(const ProcessGroup&) = delete;
    ProcessGroup& operator=(const ProcessGroup&) = delete;

    int rank() const;
    int size() const;
    // "gloo", "nccl" or "none"
    const std::string& backend() const;
    // Ranks of the members in the group that create() made.
    const std::vector<int>& global_ranks() const;

    // --- tensors, in place
    void all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum) {
        all_reduce_async(x, op).wait();
    }
    Work all_reduce_async(const Tensor& x, ReduceOp op = ReduceOp::sum);
    // Several tensors of one dtype and device in one message.
    void all_reduce(const std::vector<Tensor>& xs, ReduceOp op = ReduceOp::sum);
    // The root's values for everybody.
    void broadcast(const Tensor& x, int root = 0) { broadcast_async(x, root).wait(); }
    Work broadcast_async(const Tensor& x, int root = 0);
    // The root alone has the result; elsewhere x is unspecified afterwards.
    void reduce(const Tensor& x, int root = 0, ReduceOp op = ReduceOp::sum);

    // --- tensors, into others
    // [P, ...] from everybody's [...].
    Tensor all_gather(const Tensor& x);
    Work all_gather_into_async(const Tensor& out, const Tensor& x);
    // Everybody's, whose first dimensions may differ (0 too); all others must be equal, and no
    // tensor is 0-d.
    std::vector<Tensor> all_gather_uneven(const Tensor& x);
    // [...] from everybody's [P, ...]: this rank's part of the reduction.
    Tensor reduce_scatter(const Tensor& x, ReduceOp op = ReduceOp::sum);
    Work reduce_scatter_into_async(const Tensor& out, const Tensor& x, ReduceOp op = ReduceOp::sum);
    // out[i] is what rank i had in its x[this rank]; both [P, ...].
    Tensor all_to_all(const Tensor& x);
    // Rows sends[i] of x go to rank i; the rows that came, by rank. Sizes are found out.
    std::vector<Tensor> all_to_all_uneven(const std::vector<Tensor>& sends);
    // Everybody's at the root, undefined elsewhere; and the way back, where x is asked of the root
    // alone and shape and dtype of everybody's part come with the data.
    Tensor gather(const Tensor& x, int root = 0);
    Tensor scatter(const Tensor& x, int root = 0);

    // --- two processes. Messages between the same two arrive in the order of their tags' sends;
    // shape and dtype must be the same on both sides (CommError on both).
    void send(const Tensor& x, int to, int tag = 0) { send_async(x, to, tag).wait(); }
    void recv(const Tensor& x, int from, int tag = 0) { recv_async(x, from, tag).wait(); }
    Work send_async(const Tensor& x, int to, int tag = 0);
    Work recv_async(const Tensor& x, int from, int tag = 0);

    void barrier();

    // What the others are told should they still wait for this process once it has left: why it
    // does. Empty for nothing.
    void set_parting_words(const std::string& why);
    // The same should this process stay, and call no collective for two seconds: then those throw
    // who wait for it before it calls one.
    void set_absence(const std::string& why);

    // --- anything that a Tree holds, of any size on each rank. Tensors arrive on the CPU.
    std::vector<Tree> all_gather_object(const Tree& object);
    std::vector<Tree> gather_object(const Tree& object, int root = 0);  // empty elsewhere
    Tree broadcast_object(const Tree& object, int root = 0);
    Tree scatter_object(const std::vector<Tree>& objects, int root = 0);

    // --- groups of some. Everybody of this group calls it, with the same ranks (of this group, in
    // the order of the new ones); null for those who are not in it.
    std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks);
    // Ranks with the same color, ordered by their ranks here.
    std::shared_ptr<ProcessGroup> split(int color);

    struct Impl;
    explicit ProcessGroup(std::unique_ptr<Impl> impl);

  private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace axle::inline v0::dist
