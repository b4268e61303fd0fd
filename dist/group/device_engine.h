// Private to dist: DeviceEngine, the interface of a backend that sends data directly between GPUs.
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

// A collective that is queued on a GPU.
class DeviceWork {
  public:
    virtual ~DeviceWork() = default;
    // Makes the current stream wait; does not block the host. Throws CommError if the engine
    // failed.
    virtual void wait() = 0;
    virtual bool is_completed() const = 0;
};

// Collectives on contiguous tensors of one GPU, called in the same order on all ranks. One thread
// at a time calls the collectives, and one at a time the messages in each direction between two
// ranks. A collective starts after the work already queued on the current stream and runs
// concurrently with work queued later. Calls throw UsageError during graph capture.
class DeviceEngine {
  public:
    using Started = std::shared_ptr<DeviceWork>;

    virtual ~DeviceEngine() = default;
    virtual int device() const = 0;
    // Returns whether a collective may be called only after all ranks have agreed on it. If false,
    // it may be called immediately; if the ranks turn out to differ, abort() ends the pending
    // calls.
    virtual bool waits_for_agreement() const = 0;

    // f16 and bf16 are rounded at each step of the reduction.
    virtual Started all_reduce(const Tensor& x, ReduceOp op) = 0;
    virtual Started reduce(const Tensor& x, ReduceOp op, int root) = 0;
    virtual Started reduce_scatter(const Tensor& out, const Tensor& x, ReduceOp op) = 0;
    virtual Started broadcast(const Tensor& x, int root) = 0;
    // The vectors hold element counts, indexed by rank, and are known to every rank.
    virtual Started all_gather(const Tensor& out, const Tensor& x,
                               std::span<const std::int64_t> counts) = 0;
    virtual Started all_to_all(const Tensor& out, std::span<const std::int64_t> out_counts,
                               const Tensor& x, std::span<const std::int64_t> in_counts) = 0;
    // `whole` is undefined on ranks other than the root.
    virtual Started gather(const Tensor& whole, const Tensor& part, int root) = 0;
    virtual Started scatter(const Tensor& part, const Tensor& whole, int root) = 0;
    // Messages between two ranks in one direction arrive in order. The first call opens the
    // connection and waits for the peer.
    virtual Started send(const Tensor& x, int to) = 0;
    virtual Started recv(const Tensor& x, int from) = 0;

    // Ends all waiting for other processes; later calls throw. May be called from any thread.
    virtual void abort() noexcept = 0;
};

// Decides whether NCCL can serve a group, with `device` as this process's GPU. Called by all ranks
// together; all get the same result: either a token for open_nccl(), or the reason why not (a
// process has no GPU or no NCCL, two processes share a GPU, or NCCL versions differ). `name` is the
// group's name and prefixes its keys in the store.
struct NcclNegotiation {
    std::string error, token;
};
NcclNegotiation negotiate_nccl(Control& control, const std::string& name, int rank, int size,
                               int device, std::chrono::milliseconds timeout);
// Opens the NCCL engine and waits for the other ranks. The engine reports its failures to
// `control`.
std::unique_ptr<DeviceEngine> open_nccl(Control& control, const std::string& name, int rank,
                                        int size, int device, std::chrono::milliseconds timeout,
                                        const std::string& token);

// --- implementation of the negotiation

// Describes the GPU of one process.
struct DeviceDescription {
    std::string error;         // the reason why it cannot use NCCL, or ""
    std::string machine, gpu;  // equal for processes that share a GPU
    int version = 0;           // NCCL's version number, such as 22809 for 2.28.9
};
// Returns why these ranks cannot use NCCL together, or "" if they can.
std::string find_nccl_obstacle(const std::vector<DeviceDescription>& offers);

// Compares the offers of all ranks. make_token() runs on rank 0; if it throws, all ranks get the
// error.
NcclNegotiation compare_devices(Control& control, const std::string& name, int rank, int size,
                                const DeviceDescription& own, std::chrono::milliseconds timeout,
                                const std::function<std::string()>& make_token);

// Returns an id that differs between machines with the same name.
std::string machine_id();

}  // namespace axle::dist
