// The allocator of page-locked host memory. Block sizes are powers of two, at least 512 bytes.
// Freed blocks are kept for reuse, not returned to the driver.
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "core/cuda/memory.h"
#include "core/cuda/stream_events.h"
#include "kernels/error.h"

namespace axle::cuda::pinned_memory {
namespace {

constexpr std::size_t kSmallest = 512;

struct PinnedBlock {
    std::size_t size = 0;
    std::set<cudaStream_t> streams = {};
};
struct PendingPinned {
    void* data;
    std::size_t size;
    StreamEvents events;
};
struct Cache {
    std::mutex mutex;
    std::map<std::size_t, std::vector<void*>> free;
    std::map<void*, PinnedBlock> blocks;  // blocks in use, by address
    std::deque<PendingPinned> pending_frees;
};
Cache& cache() {
    static auto* const instance = new Cache;
    return *instance;
}

}  // namespace

void* allocate(std::size_t requested) {
    Cache& c = cache();
    const std::lock_guard lock(c.mutex);
    std::size_t size = kSmallest;
    while (size < requested) size *= 2;
    while (!c.pending_frees.empty() && c.pending_frees.front().events.passed()) {
        c.free[c.pending_frees.front().size].push_back(c.pending_frees.front().data);
        c.pending_frees.pop_front();
    }
    std::vector<void*>& free = c.free[size];
    void* data = nullptr;
    if (!free.empty()) {
        data = free.back();
        free.pop_back();
    } else {
        const RelaxedCaptureScope relaxed;
        if (cudaHostAlloc(&data, size, cudaHostAllocPortable) != cudaSuccess) {
            cudaGetLastError();
            throw OutOfMemory(str(kernels::current_op, ": out of page-locked host memory: ",
                                  requested, " bytes requested"),
                              static_cast<std::int64_t>(requested), 0, 0, 0);
        }
    }
    c.blocks[data].size = size;
    return data;
}

void deallocate(void* data) noexcept {
    Cache& c = cache();
    const std::lock_guard lock(c.mutex);
    const auto found = c.blocks.find(data);
    PinnedBlock block = std::move(found->second);
    c.blocks.erase(found);
    try {
        if (block.streams.empty())
            c.free[block.size].push_back(data);
        else
            c.pending_frees.push_back({data, block.size, StreamEvents(std::move(block.streams))});
    } catch (...) {
        cudaFreeHost(data);  // cudaFreeHost waits for all work
    }
}

void record_stream(void* data, cudaStream_t stream) {
    Cache& c = cache();
    const std::lock_guard lock(c.mutex);
    const auto found = c.blocks.find(data);
    if (found != c.blocks.end()) found->second.streams.insert(stream);
}

bool owns(const void* data) {
    Cache& c = cache();
    const std::lock_guard lock(c.mutex);
    auto found = c.blocks.upper_bound(const_cast<void*>(data));
    if (found == c.blocks.begin()) return false;
    --found;
    return static_cast<const char*>(data) < static_cast<char*>(found->first) + found->second.size;
}

}  // namespace axle::cuda::pinned_memory
