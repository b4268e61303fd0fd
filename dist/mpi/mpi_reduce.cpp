// Implements the reductions of MpiEngine.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dist/group/reduce.h"
#include "dist/mpi/mpi_engine.h"

namespace axle::dist {
namespace {

// The maximum total size in bytes that each rank receives in a small all_reduce, which must also
// fit into one round. Every rank receives the inputs of the other ranks and reduces them itself.
constexpr std::int64_t kMaxReducedByAll = 128 << 10;

}  // namespace

// Reduces the parts of all ranks, which are consecutive in `parts`, and writes the result to `out`.
void MpiEngine::reduce_parts(void* out, const std::byte* parts, std::int64_t numel, DType dtype,
                             ReduceOp op) {
    std::vector<const void*> runs;
    runs.reserve(static_cast<std::size_t>(size_));
    for (int rank = 0; rank < size_; ++rank) runs.push_back(parts + rank * numel * size_of(dtype));
    reduce(cpu_, out, runs, numel, dtype, op);
}

void MpiEngine::all_reduce(void* data, std::int64_t numel, DType dtype, ReduceOp op) {
    if (numel == 0) return;
    auto* const bytes = static_cast<std::byte*>(data);
    if (numel * size_of(dtype) * (size_ - 1) <= std::min(kMaxReducedByAll, parts_.part))
        return reduce_by_all(bytes, numel, dtype, op);
    reduce_in_rounds(bytes, numel, dtype, op);
}

void MpiEngine::reduce_by_all(std::byte* data, std::int64_t numel, DType dtype, ReduceOp op) {
    const Bytes bytes = numel * size_of(dtype);
    const std::vector<Bytes> sizes(static_cast<std::size_t>(size_), bytes);
    all_gather_for("all_reduce", memory_[2]->parts.reserve(bytes * size_), data, sizes);
    reduce_parts(data, memory_[2]->parts.data(), numel, dtype, op);
}

// Reduces the data in rounds. In each round, a rank receives one part from all ranks, reduces it,
// and sends the result to all ranks. Three rounds are processed at the same time, in different
// steps. The fourth round begins after the first round has ended, so both can use the same
// MpiOperation and memory.
void MpiEngine::reduce_in_rounds(std::byte* data, std::int64_t numel, DType dtype, ReduceOp op) {
    const Bytes width = size_of(dtype), bytes = numel * width;
    const std::int64_t part = std::max<Bytes>(1, parts_.part / width), segment = part * size_;
    const std::int64_t rounds = MpiRounds{segment}.count(numel);
    struct Step {
        MpiParts parts;  // the parts of the round's elements, one for each rank
        Bytes bytes_of_own = 0;
    };
    std::array<Step, 3> steps;
    std::array<MpiOperation, 3> transfers{MpiOperation(state_, "all_reduce", bytes),
                                          MpiOperation(state_, "all_reduce", bytes),
                                          MpiOperation(state_, "all_reduce", bytes)};
    const auto slot = [](std::int64_t round) { return static_cast<std::size_t>(round % 3); };
    const auto begin = [&](std::int64_t round) {
        Step& step = steps[slot(round)] = {};
        MpiMemory& memory = *memory_[slot(round)];
        const std::int64_t count = std::min(segment, numel - round * segment);
        for (int rank = 0; rank < size_; ++rank)
            step.parts.add((count / size_ + (rank < count % size_ ? 1 : 0)) * width);
        step.bytes_of_own = step.parts.counts[own()];
        MpiParts received;
        for (int rank = 0; rank < size_; ++rank) received.add(step.bytes_of_own);
        copy_bytes(memory.own.reserve(segment * width), data + round * segment * width,
                   step.parts.total);
        memory.parts.reserve(part * width * size_);
        memory.result.reserve(part * width);
        transfers[slot(round)].start(memory, [&](const MpiFunctions& mpi, MpiError* error) {
            return mpi.all_to_all(comm_, memory.own.data(), step.parts.counts.data(),
                                  step.parts.offsets.data(), memory.parts.data(),
                                  received.counts.data(), received.offsets.data(), error);
        });
    };
    const auto reduce_and_send = [&](std::int64_t round) {
        const Step& step = steps[slot(round)];
        MpiMemory& memory = *memory_[slot(round)];
        transfers[slot(round)].wait();
        reduce_parts(memory.result.data(), memory.parts.data(), step.bytes_of_own / width, dtype,
                     op);
        transfers[slot(round)].start(memory, [&](const MpiFunctions& mpi, MpiError* error) {
            return mpi.all_gather(comm_, memory.result.data(), static_cast<int>(step.bytes_of_own),
                                  memory.own.data(), step.parts.counts.data(),
                                  step.parts.offsets.data(), error);
        });
    };
    const auto end = [&](std::int64_t round) {
        transfers[slot(round)].wait();
        copy_bytes(data + round * segment * width, memory_[slot(round)]->own.data(),
                   steps[slot(round)].parts.total);
    };

    begin(0);
    for (std::int64_t round = 0; round < rounds; ++round) {
        if (round + 1 < rounds) begin(round + 1);
        reduce_and_send(round);
        if (round > 0) end(round - 1);
    }
    end(rounds - 1);
}

void MpiEngine::reduce_scatter(void* out, const void* in, std::int64_t numel, DType dtype,
                               ReduceOp op) {
    const Bytes width = size_of(dtype), whole = numel * width;
    const MpiRounds pieces{std::max<Bytes>(1, parts_.part / width) * width};
    in_rounds(
        "reduce_scatter", whole * size_, pieces.count(whole),
        [&](std::int64_t round, MpiMemory& memory, MpiOperation& operation) {
            const Bytes bytes = pieces.size(whole, round);
            MpiParts parts;
            std::byte* const packed = memory.own.reserve(pieces.part * size_);
            for (int rank = 0; rank < size_; ++rank) {
                copy_bytes(packed + rank * bytes,
                           static_cast<const std::byte*>(in) + rank * whole + round * pieces.part,
                           bytes);
                parts.add(bytes);
            }
            std::byte* const received = memory.parts.reserve(pieces.part * size_);
            operation.start(memory, [&](const MpiFunctions& mpi, MpiError* error) {
                return mpi.all_to_all(comm_, packed, parts.counts.data(), parts.offsets.data(),
                                      received, parts.counts.data(), parts.offsets.data(), error);
            });
        },
        [&](std::int64_t round, const MpiMemory& memory) {
            reduce_parts(static_cast<std::byte*>(out) + round * pieces.part, memory.parts.data(),
                         pieces.size(whole, round) / width, dtype, op);
        });
}

}  // namespace axle::dist
