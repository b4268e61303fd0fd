// Private to dist: what moves the data of a group. An engine is told only what everybody has agreed
// on (control.h), so sizes, dtypes and roots are the same on all ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "dist/group/process_group.h"
#include "kernels/dtype.h"

namespace axle::inline v0::dist {

class Control;

// Blocking collectives on host memory, contiguous, one at a time; threads that call it block
// SIGPIPE. Throws CommError when the others can't be reached, and soon after abort().
class HostEngine {
  public:
    virtual ~HostEngine() = default;

    virtual void all_reduce(void* data, std::int64_t numel, DType dtype, ReduceOp op) = 0;
    virtual void broadcast(void* data, std::int64_t bytes, int root) = 0;
    virtual void all_gather(void* out, const void* in, std::span<const std::int64_t> bytes) = 0;
    virtual void reduce_scatter(void* out, const void* in, std::int64_t numel, DType dtype,
                                ReduceOp op) = 0;
    // Byte counts by rank.
    virtual void all_to_all(void* out, std::span<const std::int64_t> out_bytes, const void* in,
                            std::span<const std::int64_t> in_bytes) = 0;
    virtual void gather(void* out, const void* in, std::span<const std::int64_t> bytes,
                        int root) = 0;
    virtual void scatter(void* out, const void* in, std::span<const std::int64_t> bytes,
                         int root) = 0;
    // Tags keep messages between the same two apart. Meanwhile other threads may call everything
    // else, with another tag these two as well.
    virtual void send(const void* data, std::int64_t bytes, int to, std::uint64_t tag) = 0;
    virtual void recv(void* data, std::int64_t bytes, int from, std::uint64_t tag) = 0;
    virtual void barrier() = 0;

    // From any thread: whoever waits throws, and so does everything from then on.
    virtual void abort() noexcept = 0;
};

// Gloo, from libaxle_gloo.so: looked for in AXLE_LIBRARY_PATH, beside the program and in ../lib
// from there, then where the loader looks. CommError lists the places. `name` is the group's, for
// keys in the store. Connects when it has something to say.
std::unique_ptr<HostEngine> open_gloo(Control& control, const std::string& name, int rank, int size,
                                      std::chrono::milliseconds timeout);

}  // namespace axle::inline v0::dist
