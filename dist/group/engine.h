// Private to dist: HostEngine, the interface of a backend that runs collectives on host memory. An
// engine is called only after all ranks have agreed on the call (control.h), so sizes, dtypes and
// roots are the same on all ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "dist/group/process_group.h"
#include "kernels/dtype.h"

namespace axle::dist {

class Control;

// Blocking collectives on contiguous host memory. One thread calls it at a time (except send and
// recv), and that thread blocks SIGPIPE. Methods throw CommError if another rank cannot be reached,
// and soon after abort().
class HostEngine {
  public:
    virtual ~HostEngine() = default;

    virtual void all_reduce(void* data, std::int64_t numel, DType dtype, ReduceOp op) = 0;
    virtual void broadcast(void* data, std::int64_t bytes, int root) = 0;
    virtual void all_gather(void* out, const void* in, std::span<const std::int64_t> bytes) = 0;
    virtual void reduce_scatter(void* out, const void* in, std::int64_t numel, DType dtype,
                                ReduceOp op) = 0;
    // The vectors hold byte counts, indexed by rank.
    virtual void all_to_all(void* out, std::span<const std::int64_t> out_bytes, const void* in,
                            std::span<const std::int64_t> in_bytes) = 0;
    virtual void gather(void* out, const void* in, std::span<const std::int64_t> bytes,
                        int root) = 0;
    virtual void scatter(void* out, const void* in, std::span<const std::int64_t> bytes,
                         int root) = 0;
    // Point-to-point messages. They may run in other threads at the same time as any other call.
    // Concurrent messages between the same two ranks need different tags.
    virtual void send(const void* data, std::int64_t bytes, int to, std::uint64_t tag) = 0;
    virtual void recv(void* data, std::int64_t bytes, int from, std::uint64_t tag) = 0;
    virtual void barrier() = 0;

    // Makes all pending and future calls throw. May be called from any thread.
    virtual void abort() noexcept = 0;
};

// Opens the Gloo engine from libaxle_gloo.so, which is searched for in AXLE_LIBRARY_PATH, next to
// the program, in ../lib relative to it, and then on the loader's path. Throws CommError with the
// searched places if it is not found. `name` is the group's name and prefixes its keys in the
// store. Connections are opened on first use.
std::unique_ptr<HostEngine> open_gloo(Control& control, const std::string& name, int rank, int size,
                                      std::chrono::milliseconds timeout);

}  // namespace axle::dist
