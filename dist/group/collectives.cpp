#include "dist/group/collectives.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "dist/group/reduce.h"
#include "dist/transport/tcp_transport.h"
#include "kernels/exec.h"

namespace axle::dist {
namespace {

using Bytes = std::int64_t;

// The maximum total size in bytes that each rank receives in a small all_reduce. Every rank
// receives the inputs of the other ranks and reduces them itself, in one step instead of two.
constexpr Bytes kMaxReducedByAll = 128 << 10;
// The maximum size in bytes of the parts into which other reductions are divided for each rank.
// While one part is reduced, the next part is transferred.
constexpr Bytes kPart = 512 << 10;
// The maximum size in bytes of a broadcast that the root sends whole to each rank. With more than
// two ranks, a larger broadcast is scattered over the ranks, which then exchange their parts. The
// root thus sends less than twice the data, regardless of the number of ranks.
constexpr Bytes kBroadcastWhole = 64 << 10;

// Slots of internal messages, and the first slot for user messages.
enum Slot : std::uint64_t { kData = 1, kResult = 2, kUser = std::uint64_t{1} << 32 };

// A set of messages in progress. All messages must end before their memory is reused; the
// destructors of the messages ensure this after an exception.
class MessageSet {
  public:
    explicit MessageSet(Transport& transport) : transport_(transport) {}

    void send(const void* data, Bytes bytes, int to, Slot slot = kData) {
        if (bytes > 0) messages_.push_back(transport_.send(data, bytes, to, slot));
    }
    void receive(void* data, Bytes bytes, int from, Slot slot = kData) {
        if (bytes > 0) messages_.push_back(transport_.receive(data, bytes, from, slot));
    }
    void wait() {
        for (const auto& message : messages_) message->wait();
        messages_.clear();
    }

  private:
    Transport& transport_;
    std::vector<std::unique_ptr<Transport::Message>> messages_;
};

class Collectives final : public HostEngine {
  public:
    explicit Collectives(std::unique_ptr<Transport> transport)
        : transport_(std::move(transport)), rank_(transport_->rank()), size_(transport_->size()) {}

    void all_reduce(void* data, std::int64_t numel, DType dtype, ReduceOp op) override;
    void broadcast(void* data, std::int64_t bytes, int root) override;
    void all_gather(void* out, const void* in, std::span<const std::int64_t> bytes) override;
    void reduce_scatter(void* out, const void* in, std::int64_t numel, DType dtype,
                        ReduceOp op) override;
    void all_to_all(void* out, std::span<const std::int64_t> out_bytes, const void* in,
                    std::span<const std::int64_t> in_bytes) override;
    void gather(void* out, const void* in, std::span<const std::int64_t> bytes, int root) override;
    void scatter(void* out, const void* in, std::span<const std::int64_t> bytes, int root) override;

    void send(const void* data, std::int64_t bytes, int to, std::uint64_t tag) override {
        transport_->send(data, bytes, to, kUser + tag)->wait();
    }
    void recv(void* data, std::int64_t bytes, int from, std::uint64_t tag) override {
        transport_->receive(data, bytes, from, kUser + tag)->wait();
    }
    void barrier() override;
    void abort() noexcept override { transport_->abort(); }

  private:
    // Calls f with each of the other ranks, starting with rank + 1. Each rank thus starts with a
    // different peer.
    template <class F>
    void for_other_ranks(F&& f) const {
        for (int i = 1; i < size_; ++i) f((rank_ + i) % size_);
    }
    std::byte* staging(std::size_t which, Bytes bytes);
    void reduce_by_all(std::byte* data, std::int64_t numel, DType dtype, ReduceOp op);
    void reduce_in_parts(std::byte* data, std::int64_t numel, DType dtype, ReduceOp op);
    void reduce_staged(std::byte* out, const std::byte* own, const std::byte* staged,
                       std::int64_t numel, DType dtype, ReduceOp op);

    std::unique_ptr<Transport> transport_;
    const int rank_, size_;
    kernels::Cpu cpu_;
    std::array<std::vector<std::byte>, 3> staging_;  // scratch memory that is kept between calls
};

// Divides `whole` elements into parts whose sizes differ by at most 1. Returns their boundaries:
// part i is [begins[i], begins[i + 1]).
std::vector<std::int64_t> even_parts(std::int64_t whole, int parts) {
    std::vector<std::int64_t> begins;
    const std::int64_t least = whole / parts, rest = whole % parts;
    for (int i = 0; i <= parts; ++i) begins.push_back(least * i + std::min<std::int64_t>(i, rest));
    return begins;
}

std::vector<Bytes> offsets_of(std::span<const Bytes> bytes) {
    std::vector<Bytes> offsets(bytes.size());
    std::exclusive_scan(bytes.begin(), bytes.end(), offsets.begin(), Bytes{0});
    return offsets;
}

void copy_bytes(void* to, const void* from, Bytes bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

std::byte* Collectives::staging(std::size_t which, Bytes bytes) {
    std::vector<std::byte>& memory = staging_[which];
    if (memory.size() < static_cast<std::size_t>(bytes))
        memory.resize(static_cast<std::size_t>(bytes));
    return memory.data();
}

// Reduces the data of all ranks, and writes the result to `out`. `own` is the data of this rank.
// The data of the other ranks is consecutive in `staged`, in rank order.
void Collectives::reduce_staged(std::byte* out, const std::byte* own, const std::byte* staged,
                                std::int64_t numel, DType dtype, ReduceOp op) {
    std::vector<const void*> runs;
    for (int rank = 0; rank < size_; ++rank) {
        if (rank == rank_) {
            runs.push_back(own);
        } else {
            runs.push_back(staged);
            staged += numel * size_of(dtype);
        }
    }
    reduce(cpu_, out, runs, numel, dtype, op);
}

void Collectives::all_reduce(void* data, std::int64_t numel, DType dtype, ReduceOp op) {
    transport_->connect_all();
    if (numel == 0) return;
    auto* const bytes = static_cast<std::byte*>(data);
    if (numel * size_of(dtype) * (size_ - 1) <= kMaxReducedByAll)
        return reduce_by_all(bytes, numel, dtype, op);
    reduce_in_parts(bytes, numel, dtype, op);
}

void Collectives::reduce_by_all(std::byte* data, std::int64_t numel, DType dtype, ReduceOp op) {
    const Bytes bytes = numel * size_of(dtype);
    std::byte* const staged = staging(0, bytes * (size_ - 1));
    MessageSet messages(*transport_);
    for_other_ranks([&](int other) {
        messages.receive(staged + bytes * (other < rank_ ? other : other - 1), bytes, other);
    });
    for_other_ranks([&](int other) { messages.send(data, bytes, other); });
    messages.wait();
    reduce_staged(data, data, staged, numel, dtype, op);
}

// Reduces segments of the data. In each segment, a rank receives one part from all ranks and sends
// the reduction back. Three segments are processed at the same time, in different steps. A result
// is received into the memory of the part that was sent. This is safe, because the result is sent
// only after the part has been received.
void Collectives::reduce_in_parts(std::byte* data, std::int64_t numel, DType dtype, ReduceOp op) {
    const Bytes width = size_of(dtype);
    const std::int64_t segment = kPart / width * size_;
    struct Segment {
        explicit Segment(Transport& transport) : parts(transport), results(transport) {}
        std::byte* data = nullptr;
        std::byte* staged = nullptr;
        std::vector<std::int64_t> begins;
        MessageSet parts, results;
    };
    std::array<Segment, 3> segments{Segment(*transport_), Segment(*transport_),
                                    Segment(*transport_)};

    const auto part = [&](const Segment& s, int rank) {
        const auto i = static_cast<std::size_t>(rank);
        return std::pair(s.data + s.begins[i] * width, (s.begins[i + 1] - s.begins[i]) * width);
    };
    const auto start = [&](std::int64_t begin, std::size_t which) {
        Segment& s = segments[which];
        s.data = data + begin * width;
        s.begins = even_parts(std::min(segment, numel - begin), size_);
        const Bytes own = part(s, rank_).second;
        s.staged = staging(which, own * (size_ - 1));
        for_other_ranks([&](int other) {
            s.parts.receive(s.staged + own * (other < rank_ ? other : other - 1), own, other);
        });
        for_other_ranks([&](int other) {
            const auto [bytes, size] = part(s, other);
            s.parts.send(bytes, size, other);
        });
    };
    const auto finish = [&](std::size_t which) {
        Segment& s = segments[which];
        s.parts.wait();
        for_other_ranks([&](int other) {
            const auto [bytes, size] = part(s, other);
            s.results.receive(bytes, size, other, kResult);
        });
        const auto [bytes, size] = part(s, rank_);
        reduce_staged(bytes, bytes, s.staged, size / width, dtype, op);
        for_other_ranks([&, own = bytes, length = size](int other) {
            s.results.send(own, length, other, kResult);
        });
    };

    start(0, 0);
    std::size_t turn = 0;
    for (std::int64_t begin = 0; begin < numel; begin += segment, turn = (turn + 1) % 3) {
        if (begin + segment < numel) start(begin + segment, (turn + 1) % 3);
        finish(turn);
        segments[(turn + 2) % 3].results.wait();
    }
    segments[(turn + 2) % 3].results.wait();
}

void Collectives::reduce_scatter(void* out, const void* in, std::int64_t numel, DType dtype,
                                 ReduceOp op) {
    transport_->connect_all();
    const Bytes width = size_of(dtype), whole = numel * width;
    const std::int64_t piece = kPart / width;
    const auto* const from = static_cast<const std::byte*>(in);
    auto* const to = static_cast<std::byte*>(out);
    std::array<MessageSet, 2> sets{MessageSet(*transport_), MessageSet(*transport_)};
    const auto start = [&](std::int64_t begin, std::size_t which) {
        const Bytes bytes = std::min(piece, numel - begin) * width;
        std::byte* const staged = staging(which, bytes * (size_ - 1));
        for_other_ranks([&](int other) {
            sets[which].receive(staged + bytes * (other < rank_ ? other : other - 1), bytes, other);
        });
        for_other_ranks([&](int other) {
            sets[which].send(from + whole * other + begin * width, bytes, other);
        });
    };

    if (numel > 0) start(0, 0);
    std::size_t turn = 0;
    for (std::int64_t begin = 0; begin < numel; begin += piece, turn = 1 - turn) {
        if (begin + piece < numel) start(begin + piece, 1 - turn);
        sets[turn].wait();
        reduce_staged(to + begin * width, from + whole * rank_ + begin * width,
                      staging_[turn].data(), std::min(piece, numel - begin), dtype, op);
    }
}

void Collectives::all_gather(void* out, const void* in, std::span<const std::int64_t> bytes) {
    transport_->connect_all();
    const std::vector<Bytes> offsets = offsets_of(bytes);
    auto* const to = static_cast<std::byte*>(out);
    const auto own = static_cast<std::size_t>(rank_);
    MessageSet messages(*transport_);
    for_other_ranks([&](int other) {
        const auto i = static_cast<std::size_t>(other);
        messages.receive(to + offsets[i], bytes[i], other);
    });
    for_other_ranks([&](int other) { messages.send(in, bytes[own], other); });
    copy_bytes(to + offsets[own], in, bytes[own]);
    messages.wait();
}

void Collectives::all_to_all(void* out, std::span<const std::int64_t> out_bytes, const void* in,
                             std::span<const std::int64_t> in_bytes) {
    transport_->connect_all();
    const std::vector<Bytes> to = offsets_of(out_bytes), from = offsets_of(in_bytes);
    auto* const into = static_cast<std::byte*>(out);
    const auto* const data = static_cast<const std::byte*>(in);
    const auto own = static_cast<std::size_t>(rank_);
    assert(out_bytes[own] == in_bytes[own]);
    MessageSet messages(*transport_);
    for_other_ranks([&](int other) {
        const auto i = static_cast<std::size_t>(other);
        messages.receive(into + to[i], out_bytes[i], other);
    });
    for_other_ranks([&](int other) {
        const auto i = static_cast<std::size_t>(other);
        messages.send(data + from[i], in_bytes[i], other);
    });
    copy_bytes(into + to[own], data + from[own], in_bytes[own]);
    messages.wait();
}

void Collectives::gather(void* out, const void* in, std::span<const std::int64_t> bytes, int root) {
    const auto own = static_cast<std::size_t>(rank_);
    MessageSet messages(*transport_);
    if (rank_ != root) {
        messages.send(in, bytes[own], root);
        return messages.wait();
    }
    const std::vector<Bytes> offsets = offsets_of(bytes);
    auto* const to = static_cast<std::byte*>(out);
    for_other_ranks([&](int other) {
        const auto i = static_cast<std::size_t>(other);
        messages.receive(to + offsets[i], bytes[i], other);
    });
    copy_bytes(to + offsets[own], in, bytes[own]);
    messages.wait();
}

void Collectives::scatter(void* out, const void* in, std::span<const std::int64_t> bytes,
                          int root) {
    const auto own = static_cast<std::size_t>(rank_);
    MessageSet messages(*transport_);
    if (rank_ != root) {
        messages.receive(out, bytes[own], root);
        return messages.wait();
    }
    const std::vector<Bytes> offsets = offsets_of(bytes);
    const auto* const from = static_cast<const std::byte*>(in);
    for_other_ranks([&](int other) {
        const auto i = static_cast<std::size_t>(other);
        messages.send(from + offsets[i], bytes[i], other);
    });
    copy_bytes(out, from + offsets[own], bytes[own]);
    messages.wait();
}

void Collectives::broadcast(void* data, std::int64_t bytes, int root) {
    if (bytes <= kBroadcastWhole || size_ == 2) {
        MessageSet messages(*transport_);
        if (rank_ != root) messages.receive(data, bytes, root);
        if (rank_ == root) for_other_ranks([&](int other) { messages.send(data, bytes, other); });
        return messages.wait();
    }
    transport_->connect_all();
    const std::vector<Bytes> begins = even_parts(bytes, size_);
    auto* const whole = static_cast<std::byte*>(data);
    const auto part = [&](int rank) {
        const auto i = static_cast<std::size_t>(rank);
        return std::pair(whole + begins[i], begins[i + 1] - begins[i]);
    };
    MessageSet own(*transport_), others(*transport_);
    for_other_ranks([&](int other) {
        const auto [bytes_of_other, length] = part(other);
        if (rank_ == root) own.send(bytes_of_other, length, other);
        if (rank_ != root && other != root) others.receive(bytes_of_other, length, other, kResult);
    });
    const auto [mine, length] = part(rank_);
    if (rank_ != root) own.receive(mine, length, root);
    if (rank_ != root) {
        const auto [roots, size_of_roots] = part(root);
        others.receive(roots, size_of_roots, root, kResult);
    }
    own.wait();
    for_other_ranks([&, from = mine, size = length](int other) {
        if (other != root) others.send(from, size, other, kResult);
    });
    others.wait();
}

void Collectives::barrier() {
    std::byte own{};
    const std::vector<Bytes> ones(static_cast<std::size_t>(size_), 1);
    all_gather(staging(0, size_), &own, ones);
}

}  // namespace

std::unique_ptr<HostEngine> make_collectives(std::unique_ptr<Transport> transport) {
    return std::make_unique<Collectives>(std::move(transport));
}

std::unique_ptr<HostEngine> open_tcp(Control& control, const std::string& name, int rank, int size,
                                     std::chrono::milliseconds timeout) {
    return make_collectives(open_tcp_transport(control, name, rank, size, timeout));
}

}  // namespace axle::dist
