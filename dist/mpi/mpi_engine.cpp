#include "dist/mpi/mpi_engine.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "dist/mpi/mpi_job.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

using Bytes = std::int64_t;

// The number of bytes that one round transfers for all ranks together, and the minimum and maximum
// for one rank.
constexpr Bytes kRound = 4 << 20, kLeastPart = 4 << 10, kMostPart = 1 << 20;
// The number of bytes of a broadcast or a message that are transferred at a time.
constexpr Bytes kPiece = 2 << 20;

Bytes largest(std::span<const Bytes> bytes) {
    return bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
}

std::vector<Bytes> offsets_of(std::span<const Bytes> bytes) {
    std::vector<Bytes> offsets(bytes.size());
    std::exclusive_scan(bytes.begin(), bytes.end(), offsets.begin(), Bytes{0});
    return offsets;
}

// Copies the parts of one round to `to`. The data of rank i begins at offsets[i], and its part of
// this round begins `begin` bytes after this offset.
void unpack(void* to, std::span<const Bytes> offsets, const MpiParts& parts, Bytes begin,
            const std::byte* from) {
    for (std::size_t i = 0; i < offsets.size(); ++i)
        copy_bytes(static_cast<std::byte*>(to) + offsets[i] + begin, from + parts.offsets[i],
                   parts.counts[i]);
}

// Copies the data for each rank to the rank's part of one round.
void pack(std::byte* to, const MpiParts& parts, const void* from, std::span<const Bytes> offsets,
          Bytes begin) {
    for (std::size_t i = 0; i < offsets.size(); ++i)
        copy_bytes(to + parts.offsets[i], static_cast<const std::byte*>(from) + offsets[i] + begin,
                   parts.counts[i]);
}

}  // namespace

MpiEngine::MpiEngine(const MpiFunctions& mpi, MpiComm* comm, int rank, int size, int last_tag,
                     std::chrono::milliseconds timeout, std::int64_t round_bytes)
    : state_{.mpi = mpi, .timeout = timeout},
      comm_(comm),
      rank_(rank),
      size_(size),
      last_tag_(last_tag),
      parts_{round_bytes > 0 ? round_bytes : std::clamp(kRound / size, kLeastPart, kMostPart)},
      pieces_{round_bytes > 0 ? round_bytes : kPiece} {
    for (auto& memory : memory_) memory = std::make_shared<MpiMemory>();
}

// Does not free a communicator with an operation in progress, because MPI does not allow this.
MpiEngine::~MpiEngine() {
    if (!state_.is_abandoned) state_.mpi.close(comm_);
}

// Returns the maximum of the values of all ranks.
Bytes MpiEngine::maximum(const char* call, Bytes bytes, Bytes value) {
    void* const at = memory_[0]->own.reserve(sizeof value);
    copy_bytes(at, &value, sizeof value);
    MpiOperation operation(state_, call, bytes);
    operation.start(*memory_[0], [&](const MpiFunctions& mpi, MpiError* error) {
        return mpi.maximum(comm_, static_cast<std::int64_t*>(at), error);
    });
    operation.wait();
    copy_bytes(&value, at, sizeof value);
    return value;
}

void MpiEngine::all_gather(void* out, const void* in, std::span<const std::int64_t> bytes) {
    all_gather_for("all_gather", out, in, bytes);
}

// Gathers data for the collective `call`.
void MpiEngine::all_gather_for(const char* call, void* out, const void* in,
                               std::span<const Bytes> bytes) {
    const std::vector<Bytes> offsets = offsets_of(bytes);
    in_rounds(
        call, bytes[own()], parts_.count(largest(bytes)),
        [&](std::int64_t round, MpiMemory& memory, MpiOperation& operation) {
            const MpiParts parts = parts_.parts(bytes, round);
            const int count = parts.counts[own()];
            std::byte* const sent = memory.own.reserve(count);
            copy_bytes(sent, static_cast<const std::byte*>(in) + round * parts_.part, count);
            std::byte* const received = memory.parts.reserve(parts.total);
            operation.start(memory, [&](const MpiFunctions& mpi, MpiError* error) {
                return mpi.all_gather(comm_, sent, count, received, parts.counts.data(),
                                      parts.offsets.data(), error);
            });
        },
        [&](std::int64_t round, const MpiMemory& memory) {
            unpack(out, offsets, parts_.parts(bytes, round), round * parts_.part,
                   memory.parts.data());
        });
}

void MpiEngine::all_to_all(void* out, std::span<const std::int64_t> out_bytes, const void* in,
                           std::span<const std::int64_t> in_bytes) {
    const std::vector<Bytes> to = offsets_of(out_bytes), from = offsets_of(in_bytes);
    // Sizes may differ between ranks, but all ranks must take part in all rounds. So the number of
    // rounds is computed from the largest size.
    const Bytes sum = std::accumulate(in_bytes.begin(), in_bytes.end(), Bytes{0});
    const Bytes longest = maximum("all_to_all", sum, largest(in_bytes));
    in_rounds(
        "all_to_all", sum, parts_.count(longest),
        [&](std::int64_t round, MpiMemory& memory, MpiOperation& operation) {
            const MpiParts sent = parts_.parts(in_bytes, round),
                           received = parts_.parts(out_bytes, round);
            std::byte* const packed = memory.own.reserve(sent.total);
            pack(packed, sent, in, from, round * parts_.part);
            std::byte* const arrived = memory.parts.reserve(received.total);
            operation.start(memory, [&](const MpiFunctions& mpi, MpiError* error) {
                return mpi.all_to_all(comm_, packed, sent.counts.data(), sent.offsets.data(),
                                      arrived, received.counts.data(), received.offsets.data(),
                                      error);
            });
        },
        [&](std::int64_t round, const MpiMemory& memory) {
            unpack(out, to, parts_.parts(out_bytes, round), round * parts_.part,
                   memory.parts.data());
        });
}

void MpiEngine::gather(void* out, const void* in, std::span<const std::int64_t> bytes, int root) {
    const bool is_root = rank_ == root;
    const std::vector<Bytes> offsets = offsets_of(bytes);
    // Only the root has the sizes of all ranks, so the ranks compute the largest size together.
    const Bytes longest = maximum("gather", bytes[own()], bytes[own()]);
    in_rounds(
        "gather", bytes[own()], parts_.count(longest),
        [&](std::int64_t round, MpiMemory& memory, MpiOperation& operation) {
            const MpiParts parts = parts_.parts(bytes, round);
            const int count = parts.counts[own()];
            std::byte* const sent = memory.own.reserve(count);
            copy_bytes(sent, static_cast<const std::byte*>(in) + round * parts_.part, count);
            std::byte* const received = is_root ? memory.parts.reserve(parts.total) : nullptr;
            operation.start(memory, [&](const MpiFunctions& mpi, MpiError* error) {
                return mpi.gather(comm_, sent, count, received, parts.counts.data(),
                                  parts.offsets.data(), root, error);
            });
        },
        [&](std::int64_t round, const MpiMemory& memory) {
            if (is_root)
                unpack(out, offsets, parts_.parts(bytes, round), round * parts_.part,
                       memory.parts.data());
        });
}

void MpiEngine::scatter(void* out, const void* in, std::span<const std::int64_t> bytes, int root) {
    const bool is_root = rank_ == root;
    const std::vector<Bytes> offsets = offsets_of(bytes);
    in_rounds(
        "scatter", bytes[own()], parts_.count(largest(bytes)),
        [&](std::int64_t round, MpiMemory& memory, MpiOperation& operation) {
            const MpiParts parts = parts_.parts(bytes, round);
            std::byte* const packed = is_root ? memory.parts.reserve(parts.total) : nullptr;
            if (is_root) pack(packed, parts, in, offsets, round * parts_.part);
            const int count = parts.counts[own()];
            std::byte* const received = memory.own.reserve(count);
            operation.start(memory, [&](const MpiFunctions& mpi, MpiError* error) {
                return mpi.scatter(comm_, packed, parts.counts.data(), parts.offsets.data(),
                                   received, count, root, error);
            });
        },
        [&](std::int64_t round, const MpiMemory& memory) {
            copy_bytes(static_cast<std::byte*>(out) + round * parts_.part, memory.own.data(),
                       parts_.size(bytes[own()], round));
        });
}

void MpiEngine::broadcast(void* data, std::int64_t bytes, int root) {
    auto* const whole = static_cast<std::byte*>(data);
    in_rounds(
        "broadcast", bytes, pieces_.count(bytes),
        [&](std::int64_t round, MpiMemory& memory, MpiOperation& operation) {
            const Bytes count = pieces_.size(bytes, round);
            std::byte* const moved = memory.own.reserve(count);
            if (rank_ == root) copy_bytes(moved, whole + round * pieces_.part, count);
            operation.start(memory, [&](const MpiFunctions& mpi, MpiError* error) {
                return mpi.broadcast(comm_, moved, static_cast<int>(count), root, error);
            });
        },
        [&](std::int64_t round, const MpiMemory& memory) {
            if (rank_ != root)
                copy_bytes(whole + round * pieces_.part, memory.own.data(),
                           pieces_.size(bytes, round));
        });
}

void MpiEngine::barrier() {
    MpiOperation operation(state_, "barrier", 0);
    operation.start(*memory_[0], [&](const MpiFunctions& mpi, MpiError* error) {
        return mpi.barrier(comm_, error);
    });
    operation.wait();
}

// Returns a tag as an int. Throws ValueError if it exceeds the largest tag of MPI.
int MpiEngine::tag_of(const char* call, std::uint64_t tag) const {
    if (tag > static_cast<std::uint64_t>(last_tag_))
        throw ValueError(str(call, ": the tag must be at most ", (last_tag_ - 1) / 2, " over ",
                             state_.mpi.implementation, ": it is ", tag / 2));
    return static_cast<int>(tag);
}

void MpiEngine::send(const void* data, std::int64_t bytes, int to, std::uint64_t tag) {
    const int number = tag_of("send", tag);
    const auto memory = std::make_shared<MpiMemory>();
    MpiOperation operation(state_, "send", bytes);
    for (Bytes begin = 0; begin == 0 || begin < bytes; begin += pieces_.part) {
        const Bytes count = std::min(pieces_.part, bytes - begin);
        std::byte* const moved = memory->own.reserve(count);
        copy_bytes(moved, static_cast<const std::byte*>(data) + begin, count);
        operation.start(*memory, [&](const MpiFunctions& mpi, MpiError* error) {
            return mpi.send(comm_, moved, static_cast<int>(count), to, number, error);
        });
        operation.wait();
    }
}

void MpiEngine::recv(void* data, std::int64_t bytes, int from, std::uint64_t tag) {
    const int number = tag_of("recv", tag);
    const auto memory = std::make_shared<MpiMemory>();
    MpiOperation operation(state_, "recv", bytes);
    for (Bytes begin = 0; begin == 0 || begin < bytes; begin += pieces_.part) {
        const Bytes count = std::min(pieces_.part, bytes - begin);
        std::byte* const moved = memory->own.reserve(count);
        operation.start(*memory, [&](const MpiFunctions& mpi, MpiError* error) {
            return mpi.receive(comm_, moved, static_cast<int>(count), from, number, error);
        });
        operation.wait();
        copy_bytes(static_cast<std::byte*>(data) + begin, moved, count);
    }
}

std::unique_ptr<HostEngine> make_mpi_engine(const MpiFunctions& mpi, MpiComm* comm, int rank,
                                            int size, int last_tag,
                                            std::chrono::milliseconds timeout,
                                            std::int64_t round_bytes) {
    return std::make_unique<MpiEngine>(mpi, comm, rank, size, last_tag, timeout, round_bytes);
}

std::unique_ptr<HostEngine> open_mpi(const MpiJob& job, std::span<const int> ranks, int rank,
                                     std::uint32_t id, std::chrono::milliseconds timeout) {
    std::vector<int> members;
    members.reserve(ranks.size());
    for (const int each : ranks) members.push_back(job.world_ranks[static_cast<std::size_t>(each)]);
    const int size = static_cast<int>(members.size());
    // MPI guarantees only the tags 0 to 32767.
    const int tag = static_cast<int>(id % 32768);
    MpiError error = {};
    MpiComm* const comm = job.functions->open(members.data(), size, tag, &error);
    if (comm == nullptr)
        throw CommError(str("ProcessGroup: backend mpi: cannot create a communicator of ", size,
                            " ranks over ", job.functions->implementation, ": ", error.text));
    return make_mpi_engine(*job.functions, comm, rank, size, job.last_tag, timeout);
}

}  // namespace axle::dist
