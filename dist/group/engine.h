// Private to dist: HostEngine, the interface of an engine that runs collectives on host memory. An
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

// An engine for blocking collectives on contiguous host memory. Used by one thread at a time,
// except send() and recv(). Calling threads must block SIGPIPE. Methods throw CommError if another
// rank can't be reached, and shortly after abort() was called.
class HostEngine {
  public:
    virtual ~HostEngine() = default;

    virtual void all_reduce(void* data, std::int64_t numel, DType dtype, ReduceOp op) = 0;
    virtual void broadcast(void* data, std::int64_t bytes, int root) = 0;
    virtual void all_gather(void* out, const void* in, std::span<const std::int64_t> bytes) = 0;
    virtual void reduce_scatter(void* out, const void* in, std::int64_t numel, DType dtype,
                                ReduceOp op) = 0;
    // The spans have the number of bytes for each rank.
    virtual void all_to_all(void* out, std::span<const std::int64_t> out_bytes, const void* in,
                            std::span<const std::int64_t> in_bytes) = 0;
    virtual void gather(void* out, const void* in, std::span<const std::int64_t> bytes,
                        int root) = 0;
    virtual void scatter(void* out, const void* in, std::span<const std::int64_t> bytes,
                         int root) = 0;
    // Send and receive a message. Can be called concurrently with all other methods. Concurrent
    // messages between the same two ranks need different tags.
    virtual void send(const void* data, std::int64_t bytes, int to, std::uint64_t tag) = 0;
    virtual void recv(void* data, std::int64_t bytes, int from, std::uint64_t tag) = 0;
    virtual void barrier() = 0;

    // Makes all pending and future calls throw. Thread-safe.
    virtual void abort() noexcept = 0;
};

// Opens the Gloo engine from libaxle_gloo.so. The library is searched for in AXLE_LIBRARY_PATH, in
// the program's folder, in ../lib next to this folder, on the loader's path, and in the library
// folder of the `axle launch` that has started this process. Throws CommError with these paths if
// none has a library of this version, or if the program is linked with -static. `name` is the
// group's name, a prefix of its keys in the store. Connections are opened on first use.
std::unique_ptr<HostEngine> open_gloo(Control& control, const std::string& name, int rank, int size,
                                      std::chrono::milliseconds timeout);

}  // namespace axle::dist
