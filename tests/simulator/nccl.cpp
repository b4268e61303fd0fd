// A replacement for NCCL on the simulated GPU: a shared library of the same name in a folder that
// AXLE_LIBRARY_PATH lists. Ranks are threads of one process, each with its own streams. The library
// behaves like NCCL with a non-blocking communicator. It returns ncclInProgress until all ranks
// have made their calls, and reports the abort of a rank to all ranks.
//
// A group of calls is queued as two functions on the stream. The first function copies the data
// that the rank sends. The second function is queued when all ranks have made their calls. It waits
// for the copies of all ranks, and computes the data that this rank receives.
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#if __has_include(<nccl.h>)
#include <nccl.h>
#else
#include "dist/cuda/nccl_api.h"
#endif

#include "kernels/half.h"
#include "tests/simulator/runtime_state.h"

namespace {

using axle::BFloat16;
using axle::Half;
using axle::kernels::simulator::count_call;
using Bytes = std::vector<char>;

enum class Kind { all_reduce, reduce, reduce_scatter, broadcast, all_gather, send, recv };

struct Call {
    Kind kind;
    const void* from;
    void* to;
    std::size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer;  // the root, or the peer of a send or receive
    cudaStream_t stream;
};

std::size_t size_of(ncclDataType_t type) {
    switch (type) {
        case ncclFloat64:
        case ncclInt64:
        case ncclUint64:
            return 8;
        case ncclFloat32:
        case ncclInt32:
        case ncclUint32:
            return 4;
        case ncclFloat16:
        case ncclBfloat16:
            return 2;
        default:
            return 1;
    }
}

// Returns the number of bytes that a rank sends in a call.
std::size_t sent(const Call& c, int ranks) {
    if (c.kind == Kind::recv) return 0;
    const std::size_t parts = c.kind == Kind::reduce_scatter ? static_cast<std::size_t>(ranks) : 1;
    return parts * c.count * size_of(c.type);
}

struct World;

// The calls of all ranks between the n-th ncclGroupStart and ncclGroupEnd of each rank.
struct Round {
    explicit Round(int ranks)
        : calls(static_cast<std::size_t>(ranks)),
          sent_data(static_cast<std::size_t>(ranks)),
          sent_event(static_cast<std::size_t>(ranks)) {}
    std::vector<std::vector<Call>> calls;       // the calls of each rank
    std::vector<std::vector<Bytes>> sent_data;  // copies of the sent data, by rank and call
    std::vector<cudaEvent_t> sent_event;        // recorded when a rank's data are copied, by rank
    int arrived = 0;
};

struct World {
    std::mutex mutex;
    int ranks = 0, joined = 0;
    bool aborted = false;
    std::map<std::size_t, std::shared_ptr<Round>> rounds;
};

std::mutex worlds_mutex;
std::map<std::string, std::shared_ptr<World>> worlds;
int ids = 0;

// One rank's part of a round: the argument of the functions on its stream.
struct Part {
    std::shared_ptr<Round> round;
    std::size_t rank;
};

template <class T>
void add_up(ncclRedOp_t op, const std::vector<const char*>& sources, std::size_t count, char* to) {
    for (std::size_t i = 0; i < count; ++i) {
        T sum;
        std::memcpy(&sum, sources[0] + i * sizeof(T), sizeof(T));
        for (std::size_t r = 1; r < sources.size(); ++r) {
            T x;
            std::memcpy(&x, sources[r] + i * sizeof(T), sizeof(T));
            if (op == ncclSum || op == ncclAvg) sum = static_cast<T>(sum + x);
            if (op == ncclProd) sum = static_cast<T>(sum * x);
            if (op == ncclMax && x > sum) sum = x;
            if (op == ncclMin && x < sum) sum = x;
        }
        if (op == ncclAvg)
            sum = static_cast<T>(sum / static_cast<T>(static_cast<float>(sources.size())));
        std::memcpy(to + i * sizeof(T), &sum, sizeof(T));
    }
}

void reduce(const Call& c, const std::vector<const char*>& sources) {
    char* const to = static_cast<char*>(c.to);
    switch (c.type) {
        case ncclFloat64:
            return add_up<double>(c.op, sources, c.count, to);
        case ncclFloat32:
            return add_up<float>(c.op, sources, c.count, to);
        case ncclFloat16:
            return add_up<Half>(c.op, sources, c.count, to);
        case ncclBfloat16:
            return add_up<BFloat16>(c.op, sources, c.count, to);
        case ncclInt64:
            return add_up<std::int64_t>(c.op, sources, c.count, to);
        case ncclInt32:
            return add_up<std::int32_t>(c.op, sources, c.count, to);
        default:
            return add_up<std::uint8_t>(c.op, sources, c.count, to);
    }
}

void copy_sent_data(void* argument) {
    const auto& part = *static_cast<Part*>(argument);
    Round& round = *part.round;
    const int ranks = static_cast<int>(round.calls.size());
    for (const Call& c : round.calls[part.rank]) {
        const auto* const from = static_cast<const char*>(c.from);
        round.sent_data[part.rank].emplace_back(from, from + sent(c, ranks));
    }
}

// Returns message n, counted from 0, of the messages that one rank sends to another in a round, or
// null if there is none. NCCL matches messages in order.
const Bytes* message(const Round& round, std::size_t from, std::size_t to, std::size_t n) {
    for (std::size_t i = 0; i < round.calls[from].size(); ++i) {
        const Call& c = round.calls[from][i];
        if (c.kind == Kind::send && c.peer == static_cast<int>(to) && n-- == 0)
            return &round.sent_data[from][i];
    }
    return nullptr;
}

void receive(const Round& round, std::size_t rank, std::size_t index) {
    const Call& c = round.calls[rank][index];
    const std::size_t bytes = c.count * size_of(c.type);
    auto* const to = static_cast<char*>(c.to);
    if (c.kind == Kind::send) return;
    if (c.kind == Kind::recv) {
        std::size_t before = 0;
        for (std::size_t i = 0; i < index; ++i)
            before +=
                round.calls[rank][i].kind == Kind::recv && round.calls[rank][i].peer == c.peer;
        const Bytes* const found = message(round, static_cast<std::size_t>(c.peer), rank, before);
        if (found != nullptr && found->size() == bytes) std::memcpy(to, found->data(), bytes);
        return;
    }
    const std::size_t shift = c.kind == Kind::reduce_scatter ? rank * bytes : 0;
    std::vector<const char*> sources;
    for (const auto& sent_data : round.sent_data) {
        // If the calls of the ranks differ, NCCL hangs or writes garbage. The simulation leaves the
        // memory unchanged.
        if (index >= sent_data.size() || sent_data[index].size() < shift + bytes) return;
        sources.push_back(sent_data[index].data() + shift);
    }
    if (c.kind == Kind::broadcast)
        std::memcpy(to, sources[static_cast<std::size_t>(c.peer)], bytes);
    else if (c.kind == Kind::all_gather)
        for (std::size_t r = 0; r < sources.size(); ++r)
            std::memcpy(to + r * bytes, sources[r], bytes);
    else if (c.kind != Kind::reduce || c.peer == static_cast<int>(rank))
        reduce(c, sources);
}

void receive_all(void* argument) {
    const auto* const part = static_cast<const Part*>(argument);
    for (const cudaEvent_t sent_event : part->round->sent_event) cudaEventSynchronize(sent_event);
    for (std::size_t i = 0; i < part->round->calls[part->rank].size(); ++i)
        receive(*part->round, part->rank, i);
}

}  // namespace

struct ncclComm {
    std::shared_ptr<World> world;
    int rank = 0;
    std::size_t rounds = 0;
    std::vector<Call> calls;
    Part* waiting = nullptr;  // queued when all ranks have made their calls
    cudaStream_t stream = nullptr;
};

namespace {

thread_local int depth = 0;
thread_local std::vector<ncclComm_t> in_group;

ncclResult_t add(ncclComm_t comm, Call call) {
    if (depth == 0) return ncclResult_t(5);  // 5 is ncclInvalidUsage
    if (comm->calls.empty()) in_group.push_back(comm);
    comm->calls.push_back(call);
    return ncclSuccess;
}

// Returns the bytes of a buffer with `count` elements for each rank.
std::size_t whole_bytes(std::size_t count, ncclDataType_t type, const ncclComm* comm) {
    return static_cast<std::size_t>(comm->world->ranks) * count * size_of(type);
}

void submit(ncclComm_t comm) {
    const auto rank = static_cast<std::size_t>(comm->rank);
    std::shared_ptr<Round> round;
    comm->stream = comm->calls[0].stream;
    {
        const std::lock_guard lock(comm->world->mutex);
        auto& place = comm->world->rounds[comm->rounds++];
        if (place == nullptr) place = std::make_shared<Round>(comm->world->ranks);
        round = place;
        round->calls[rank] = std::move(comm->calls);
    }
    comm->calls.clear();
    auto owned = std::make_unique<Part>(Part{round, rank});
    comm->waiting = owned.get();
    cudaLaunchHostFunc(comm->stream, copy_sent_data, comm->waiting);
    cudaEvent_t event = nullptr;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, comm->stream);
    const std::lock_guard lock(comm->world->mutex);
    // Events and parts are never destroyed. Another rank of the round, or a stream, can use them at
    // any time, even after the communicator was aborted.
    static auto& events = *new std::vector<cudaEvent_t>;
    static auto& parts = *new std::vector<std::unique_ptr<Part>>;
    static auto& kept_mutex = *new std::mutex;
    {
        const std::lock_guard kept(kept_mutex);
        events.push_back(event);
        parts.push_back(std::move(owned));
    }
    round->sent_event[rank] = event;
    ++round->arrived;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
    *version = 22809;
    return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
    return result == ncclSuccess ? "no error" : result == 6 ? "remote process exited" : "misuse";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const std::lock_guard lock(worlds_mutex);
    *id = {};
    const std::string text = "world " + std::to_string(ids++);
    text.copy(id->internal, text.size());
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    if (config->blocking != 0 || rank < 0 || rank >= ranks) return ncclResult_t(4);
    const std::lock_guard lock(worlds_mutex);
    auto& world = worlds[std::string(id.internal, sizeof id.internal)];
    if (world == nullptr) world = std::make_shared<World>();
    const std::lock_guard inner(world->mutex);
    world->ranks = ranks;
    ++world->joined;
    *comm = new ncclComm{world, rank, 0, {}, nullptr, nullptr};
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    Part* ready = nullptr;
    {
        const std::lock_guard lock(comm->world->mutex);
        const World& world = *comm->world;
        const bool waits = comm->waiting != nullptr && comm->waiting->round->arrived < world.ranks;
        *error = world.aborted                         ? ncclResult_t(6)
                 : world.joined < world.ranks || waits ? ncclInProgress
                                                       : ncclSuccess;
        if (*error == ncclSuccess) std::swap(ready, comm->waiting);
    }
    if (ready != nullptr) cudaLaunchHostFunc(comm->stream, receive_all, ready);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    delete comm;
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    {
        const std::lock_guard lock(comm->world->mutex);
        comm->world->aborted = true;
    }
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
    ++depth;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    if (--depth > 0) return ncclSuccess;
    const std::vector<ncclComm_t> comms = std::move(in_group);
    in_group.clear();
    for (const ncclComm_t comm : comms) submit(comm);
    return comms.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    count_call("ncclAllReduce");
    return add(comm, {Kind::all_reduce, from, to, count, type, op, 0, stream});
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, {Kind::reduce, from, to, count, type, op, root, stream});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    count_call("ncclReduceScatter", whole_bytes(count, type, comm));
    return add(comm, {Kind::reduce_scatter, from, to, count, type, op, 0, stream});
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
    // NCCL ignores `from` on all ranks but the root.
    const void* const read = comm->rank == root ? from : to;
    return add(comm, {Kind::broadcast, read, to, count, type, ncclSum, root, stream});
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    count_call("ncclAllGather", whole_bytes(count, type, comm));
    return add(comm, {Kind::all_gather, from, to, count, type, ncclSum, 0, stream});
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return add(comm, {Kind::send, from, nullptr, count, type, ncclSum, peer, stream});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add(comm, {Kind::recv, nullptr, to, count, type, ncclSum, peer, stream});
}

}  // extern "C"
