// Private to core: the block structure of the caching allocator for one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <unordered_map>

#include <cuda_runtime_api.h>

#include "core/cuda/expandable.h"
#include "core/cuda/memory.h"
#include "core/cuda/stream_events.h"

namespace axle::cuda {

// The size of each block is a multiple of this number of bytes.
constexpr std::size_t kBlockAlignment = 512;

struct Pool;

struct Block {
    char* data = nullptr;
    std::size_t size = 0;
    cudaStream_t stream = nullptr;
    Pool* pool = nullptr;
    Block *before = nullptr, *after = nullptr;  // neighbors in the segment
    bool in_use = false;
    std::set<cudaStream_t> other_streams = {};  // streams other than `stream` that used the block
    ExpandableSegment* expandable = nullptr;    // the segment that contains the block, or null
};

// Orders free blocks by stream, size and address.
struct BlockOrder {
    using is_transparent = void;
    using Key = std::tuple<cudaStream_t, std::size_t, char*>;
    static Key key(const Block* b) { return {b->stream, b->size, b->data}; }
    static Key key(const Key& k) { return k; }
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
        return key(a) < key(b);
    }
};

// The free blocks for one kind of request: small or large, shared or of a graph pool.
struct Pool {
    bool small = false;
    bool shared = true;  // if false, only captures of CUDA graphs allocate from the pool
    bool released = false;
    std::int64_t blocks_in_use = 0;
    std::set<Block*, BlockOrder> free = {};
    std::map<cudaStream_t, std::unique_ptr<ExpandableSegment>> expandable = {};
};

struct Pools {
    Pool small{.small = true}, large{};
};

// A freed block that can be reused when other streams have finished their work on it.
struct PendingFree {
    Block* block;
    StreamEvents events;
};

// The allocator state of one device. The functions of device_memory lock its mutex.
struct Memory {
    std::mutex mutex;
    int device = 0;
    Pools pools;
    std::map<device_memory::PoolId, Pools> graph_pools;
    device_memory::PoolId last_pool = 0;
    device_memory::PoolId current_pool = 0;  // 0 if no capture is active
    cudaStream_t pool_stream = nullptr;
    std::unordered_map<void*, Block*> blocks;  // blocks in use, by address
    std::deque<PendingFree> pending_frees;     // blocks that wait for other streams
    MemoryStats stats;
    std::int64_t limit = INT64_MAX;

    Pool& pool_for(std::size_t size, cudaStream_t stream);
    Block* find(Pool& pool, std::size_t size, cudaStream_t stream);
    Block* new_block(Pool& pool, std::size_t size, cudaStream_t stream);
    Block* grow(Pool& pool, std::size_t size, std::size_t step, cudaStream_t stream);
    void split(Block* block, std::size_t size);
    void release(Block* block);
    Block* merge(Block* block);
    void collect_pending(bool wait);
    void flush();
    void flush(Pool& pool);
    void erase_released_pools();
    [[noreturn]] void out_of_memory(std::size_t requested) const;
};

}  // namespace axle::cuda
