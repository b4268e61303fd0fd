// Private to dist: HostEngine, the interface of an engine that runs collectives on host memory, and
// the functions that open the TCP and MPI engines. All ranks agree on a collective before an engine
// runs it (control.h). Dtypes and roots are therefore the same on all ranks, and sizes match.
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
struct MpiComm;
struct MpiFunctions;
struct MpiJob;

// An engine for blocking collectives on contiguous host memory. Used by one thread at a time,
// except send() and recv(). Methods throw CommError if another rank can't be reached. Waiting
// methods throw it shortly after abort() was called.
class HostEngine {
  public:
    virtual ~HostEngine() = default;

    // Replaces the data of all ranks by their reduction.
    virtual void all_reduce(void* data, std::int64_t numel, DType dtype, ReduceOp op) = 0;
    // Replaces the data of all ranks by the data of the root.
    virtual void broadcast(void* data, std::int64_t bytes, int root) = 0;
    // Writes `in` of all ranks to `out`, in rank order; bytes[r] is the size of rank r's `in`.
    virtual void all_gather(void* out, const void* in, std::span<const std::int64_t> bytes) = 0;
    // Writes this rank's part of the reduction of `in` to `out`. Every part has `numel` elements.
    virtual void reduce_scatter(void* out, const void* in, std::int64_t numel, DType dtype,
                                ReduceOp op) = 0;
    // Sends part r of `in` to rank r, and writes the parts from all ranks to `out`, in rank order.
    // The spans of this and the following functions have one number of bytes for each rank, in rank
    // order.
    virtual void all_to_all(void* out, std::span<const std::int64_t> out_bytes, const void* in,
                            std::span<const std::int64_t> in_bytes) = 0;
    // gather() writes `in` of all ranks to `out` on the root, and scatter() writes the parts of the
    // root's `in` to `out` of each rank. On ranks other than the root, the pointer to the data of
    // all ranks may be null, and gather() uses only this rank's entry of `bytes`.
    virtual void gather(void* out, const void* in, std::span<const std::int64_t> bytes,
                        int root) = 0;
    virtual void scatter(void* out, const void* in, std::span<const std::int64_t> bytes,
                         int root) = 0;
    // Send and receive a message. May be called concurrently with all other methods. Concurrent
    // messages between the same two ranks need different tags. Over MPI, throw ValueError for a tag
    // above the largest tag of the implementation.
    virtual void send(const void* data, std::int64_t bytes, int to, std::uint64_t tag) = 0;
    virtual void recv(void* data, std::int64_t bytes, int from, std::uint64_t tag) = 0;
    // Waits until all ranks have called barrier().
    virtual void barrier() = 0;

    // Makes all pending and future calls throw. Thread-safe.
    virtual void abort() noexcept = 0;
};

// Opens the TCP engine of a group. `name` is the group's name, a prefix of its keys in the store.
// `timeout` is the timeout of a message and of opening a connection. Connections are opened on
// first use. Throws CommError if the system cannot listen at control.local_address().
std::unique_ptr<HostEngine> open_tcp(Control& control, const std::string& name, int rank, int size,
                                     std::chrono::milliseconds timeout);

// Opens the MPI engine of a group, and waits until all ranks of the group have called this
// function. ranks[i] is the rank in the job of rank i of the group. `id` is the number of the
// group. Throws CommError if MPI fails.
std::unique_ptr<HostEngine> open_mpi(const MpiJob& job, std::span<const int> ranks, int rank,
                                     std::uint32_t id, std::chrono::milliseconds timeout);
// Returns an engine that uses `comm` and frees it, unless an operation on `comm` could not be
// ended. A transfer has at most `round_bytes` bytes for each rank. 0 selects 2 MiB for broadcasts
// and messages, and for the other collectives a limit that depends on the number of ranks. last_tag
// is the largest allowed message tag.
std::unique_ptr<HostEngine> make_mpi_engine(const MpiFunctions& mpi, MpiComm* comm, int rank,
                                            int size, int last_tag,
                                            std::chrono::milliseconds timeout,
                                            std::int64_t round_bytes = 0);

}  // namespace axle::dist
