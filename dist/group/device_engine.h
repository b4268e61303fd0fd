// Private to dist: DeviceEngine, the interface of an engine that sends data directly between GPUs,
// and the functions that negotiate and open the NCCL engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "dist/group/process_group.h"

namespace axle::dist {

class Control;

// A collective or a message that is queued on a GPU.
class DeviceWork {
  public:
    virtual ~DeviceWork() = default;
    // Makes the current stream wait for it; does not block the host. Throws CommError
    // if the engine failed.
    virtual void wait() = 0;
    virtual bool is_completed() const = 0;
};

// An engine for collectives on contiguous tensors of one GPU, called in the same order on all
// ranks. At any time, one thread calls collectives, and one thread calls send() or recv() for each
// peer and direction. A collective starts after the work already queued on the current stream and
// runs concurrently with work queued later. Calls throw UsageError during graph capture,
// DeviceError for tensors on another device, and CommError after abort().
class DeviceEngine {
  public:
    using Started = std::shared_ptr<DeviceWork>;

    virtual ~DeviceEngine() = default;
    virtual int device() const = 0;
    // Returns whether all ranks must agree on a collective before it is called. If false, a
    // collective may be called immediately. If the agreement then fails, abort() ends the pending
    // calls.
    virtual bool waits_for_agreement() const = 0;

    // Replaces x by the reduction of x over all ranks. All reductions in f16 and bf16 round at each
    // step.
    virtual Started all_reduce(const Tensor& x, ReduceOp op) = 0;
    // Replaces x of the root by the reduction of x over all ranks.
    virtual Started reduce(const Tensor& x, ReduceOp op, int root) = 0;
    // Writes this rank's part of the reduction of x to out. Part r, of out.numel() elements, starts
    // at element r * out.numel() of x.
    virtual Started reduce_scatter(const Tensor& out, const Tensor& x, ReduceOp op) = 0;
    // Replaces x of all ranks by x of the root.
    virtual Started broadcast(const Tensor& x, int root) = 0;
    // Writes x of all ranks, in the order of ranks, to out. counts[r] is the number of elements of
    // rank r; all ranks pass the same counts.
    virtual Started all_gather(const Tensor& out, const Tensor& x,
                               std::span<const std::int64_t> counts) = 0;
    // Sends part r of x, with in_counts[r] elements, to rank r. Writes the parts from all ranks to
    // out, in the order of ranks. out_counts[r] is the number of elements from rank r.
    virtual Started all_to_all(const Tensor& out, std::span<const std::int64_t> out_counts,
                               const Tensor& x, std::span<const std::int64_t> in_counts) = 0;
    // gather() writes `part` of all ranks, in the order of ranks, to `whole` on the root. scatter()
    // writes the parts of the root's `whole` to `part` of each rank. All parts have the same size.
    // `whole` is undefined on ranks other than the root.
    virtual Started gather(const Tensor& whole, const Tensor& part, int root) = 0;
    virtual Started scatter(const Tensor& part, const Tensor& whole, int root) = 0;
    // Send and receive a message. Messages from one rank to another arrive in order. The first call
    // opens the connection and waits for the peer.
    virtual Started send(const Tensor& x, int to) = 0;
    virtual Started recv(const Tensor& x, int from) = 0;

    // Ends all waits for other processes; later calls throw. Thread-safe.
    virtual void abort() noexcept = 0;
};

// Whether a group can use NCCL; the result is the same on all ranks. Contains a token for
// open_nccl(), or the reason why NCCL can't be used.
struct NcclNegotiation {
    std::string error, token;
};
// Decides whether the ranks of a group can use NCCL. All ranks of the group must call this
// function. Throws CommError if a rank does not call it within `timeout`.
NcclNegotiation negotiate_nccl(Control& control, const std::string& name, int rank, int size,
                               int device, std::chrono::milliseconds timeout);
// Opens the NCCL engine and waits for the other ranks. Failures of the engine are reported to
// `control`. Throws CommError if NCCL fails or a rank does not connect within `timeout`.
std::unique_ptr<DeviceEngine> open_nccl(Control& control, const std::string& name, int rank,
                                        int size, int device, std::chrono::milliseconds timeout,
                                        const std::string& token);

// --- implementation of the negotiation

// The description of one process's GPU.
struct DeviceDescription {
    std::string error;         // the reason why the process can't use NCCL, or ""
    std::string machine, gpu;  // ids; processes with the same two ids share a GPU
    int version = 0;           // NCCL's version number, such as 22809 for 2.28.9
};
// Returns the reason why these ranks can't use NCCL together, or "" if they can.
std::string find_nccl_obstacle(const std::vector<DeviceDescription>& offers);

// Compares the descriptions of all ranks. make_token() is called on rank 0 if the ranks can use
// NCCL. If make_token() throws, the result of all ranks contains the text of its error. Throws
// CommError if a rank is missing.
NcclNegotiation compare_devices(Control& control, const std::string& name, int rank, int size,
                                const DeviceDescription& own, std::chrono::milliseconds timeout,
                                const std::function<std::string()>& make_token);

// Returns the boot id of this machine. If the system has no boot id, returns the host name, which
// other machines can have too.
std::string machine_id();

}  // namespace axle::dist
