// Private to dist: MpiEngine, the implementation of HostEngine with the non-blocking collectives of
// MPI.
//
// MPI transfers only bytes; Axle reduces the numbers (reduce.h). Every element is therefore
// combined and rounded as over TCP, and all ranks get the same bits, for all dtypes.
//
// Data moves in rounds through memory of the engine. The counts of MPI, which are of type int, thus
// suffice for all sizes. An operation that MPI cannot end after a failure does not access the
// memory of tensors. While one round is transferred, the data of another round is copied or
// reduced.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dist/group/engine.h"
#include "dist/mpi/mpi_operation.h"
#include "dist/mpi/mpi_rounds.h"
#include "kernels/exec.h"

namespace axle::dist {

class MpiEngine final : public HostEngine {
  public:
    // make_mpi_engine() documents the arguments.
    MpiEngine(const MpiFunctions& mpi, MpiComm* comm, int rank, int size, int last_tag,
              std::chrono::milliseconds timeout, std::int64_t round_bytes);
    ~MpiEngine() override;
    MpiEngine(const MpiEngine&) = delete;
    MpiEngine& operator=(const MpiEngine&) = delete;

    void all_reduce(void* data, std::int64_t numel, DType dtype, ReduceOp op) override;
    void broadcast(void* data, std::int64_t bytes, int root) override;
    void all_gather(void* out, const void* in, std::span<const std::int64_t> bytes) override;
    void reduce_scatter(void* out, const void* in, std::int64_t numel, DType dtype,
                        ReduceOp op) override;
    void all_to_all(void* out, std::span<const std::int64_t> out_bytes, const void* in,
                    std::span<const std::int64_t> in_bytes) override;
    void gather(void* out, const void* in, std::span<const std::int64_t> bytes, int root) override;
    void scatter(void* out, const void* in, std::span<const std::int64_t> bytes, int root) override;
    void send(const void* data, std::int64_t bytes, int to, std::uint64_t tag) override;
    void recv(void* data, std::int64_t bytes, int from, std::uint64_t tag) override;
    void barrier() override;
    void abort() noexcept override { state_.is_aborted = true; }

  private:
    using Bytes = std::int64_t;

    std::size_t own() const { return static_cast<std::size_t>(rank_); }
    // Runs `rounds` transfers, of which two are in flight. start(round, memory, operation) starts
    // the transfer of a round, and finish(round, memory) uses the received data. A round is started
    // before the round before it is finished, and has the other of two memories.
    template <class Start, class Finish>
    void in_rounds(const char* call, Bytes bytes, std::int64_t rounds, Start&& start,
                   Finish&& finish);
    Bytes maximum(const char* call, Bytes bytes, Bytes value);
    void all_gather_for(const char* call, void* out, const void* in, std::span<const Bytes> bytes);
    void reduce_parts(void* out, const std::byte* parts, std::int64_t numel, DType dtype,
                      ReduceOp op);
    void reduce_by_all(std::byte* data, std::int64_t numel, DType dtype, ReduceOp op);
    void reduce_in_rounds(std::byte* data, std::int64_t numel, DType dtype, ReduceOp op);
    int tag_of(const char* call, std::uint64_t tag) const;

    MpiEngineState state_;
    MpiComm* const comm_;
    const int rank_, size_, last_tag_;
    const MpiRounds parts_, pieces_;  // rounds of collectives, and of broadcasts and messages
    kernels::Cpu cpu_;
    std::array<std::shared_ptr<MpiMemory>, 3> memory_;
};

template <class Start, class Finish>
void MpiEngine::in_rounds(const char* call, Bytes bytes, std::int64_t rounds, Start&& start,
                          Finish&& finish) {
    std::array<MpiOperation, 2> operations{MpiOperation(state_, call, bytes),
                                           MpiOperation(state_, call, bytes)};
    const auto begin = [&](std::int64_t round) {
        const auto which = static_cast<std::size_t>(round % 2);
        start(round, *memory_[which], operations[which]);
    };
    if (rounds > 0) begin(0);
    for (std::int64_t round = 0; round < rounds; ++round) {
        if (round + 1 < rounds) begin(round + 1);
        const auto which = static_cast<std::size_t>(round % 2);
        operations[which].wait();
        finish(round, *memory_[which]);
    }
}

}  // namespace axle::dist
