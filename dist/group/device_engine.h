// Private to dist: what moves the data of a group from GPU to GPU, past the host.
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

namespace axle::inline v0::dist {

class Control;

// A collective that is queued on a GPU.
class DeviceWork {
  public:
    virtual ~DeviceWork() = default;
    // The current stream waits, not the host. CommError if the engine has failed.
    virtual void wait() = 0;
    virtual bool is_completed() const = 0;
};

// Collectives on contiguous tensors of one GPU, in the same order on all ranks; those of the group,
// and messages in each direction between two, are called by one thread at a time. Each begins when
// what the current stream holds is done, and goes on beside what is queued there later. UsageError
// while a graph is captured.
class DeviceEngine {
  public:
    using Started = std::shared_ptr<DeviceWork>;

    virtual ~DeviceEngine() = default;
    virtual int device() const = 0;
    // Whether a collective may be called only when all have agreed on it. If not, it may be called
    // at once: where they turn out to differ, the failure's abort() ends what they wait for.
    virtual bool waits_for_agreement() const = 0;

    // f16 and bf16 are rounded each time that two values become one.
    virtual Started all_reduce(const Tensor& x, ReduceOp op) = 0;
    virtual Started reduce(const Tensor& x, ReduceOp op, int root) = 0;
    virtual Started reduce_scatter(const Tensor& out, const Tensor& x, ReduceOp op) = 0;
    virtual Started broadcast(const Tensor& x, int root) = 0;
    // Elements by rank; everybody knows all of them.
    virtual Started all_gather(const Tensor& out, const Tensor& x,
                               std::span<const std::int64_t> counts) = 0;
    virtual Started all_to_all(const Tensor& out, std::span<const std::int64_t> out_counts,
                               const Tensor& x, std::span<const std::int64_t> in_counts) = 0;
    // The whole is undefined on other ranks than the root.
    virtual Started gather(const Tensor& whole, const Tensor& part, int root) = 0;
    virtual Started scatter(const Tensor& part, const Tensor& whole, int root) = 0;
    // Messages between two in one direction arrive in their order. The first waits for the other.
    virtual Started send(const Tensor& x, int to) = 0;
    virtual Started recv(const Tensor& x, int from) = 0;

    // From any thread: what waits for other processes ends, and every call throws from then on.
    virtual void abort() noexcept = 0;
};

// Whether NCCL can serve a group, with `device` as this process's GPU. All ranks call it together
// and get the same answer: a token to open it with, or the trouble that a process has no GPU or no
// NCCL, that two share a GPU, or that their NCCLs differ. `name` is the group's, for keys in the
// store.
struct Invitation {
    std::string trouble, token;
};
Invitation invite_to_nccl(Control& control, const std::string& name, int rank, int size, int device,
                          std::chrono::milliseconds timeout);
// Waits for the other ranks. The engine reports failures to `control`.
std::unique_ptr<DeviceEngine> open_nccl(Control& control, const std::string& name, int rank,
                                        int size, int device, std::chrono::milliseconds timeout,
                                        const std::string& token);

// --- how they find out

// What a process has to say about its GPU.
struct DeviceOffer {
    std::string trouble;       // why it has none to offer
    std::string machine, gpu;  // alike for processes that share it
    int version = 0;           // of NCCL: 22809 is 2.28.9
};
// Why these ranks can't use NCCL together; empty if they can.
std::string why_not(const std::vector<DeviceOffer>& offers);

// Trouble, or what make_token() returned on rank 0. It may throw, which is trouble for everybody.
Invitation compare_offers(Control& control, const std::string& name, int rank, int size,
                          const DeviceOffer& own, std::chrono::milliseconds timeout,
                          const std::function<std::string()>& make_token);

// What tells machines apart that may have the same name.
std::string machine_id();

}  // namespace axle::inline v0::dist
