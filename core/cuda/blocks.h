// Private to core: the blocks of one device's memory.
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
#include "core/cuda/places.h"

namespace axle::inline v0::cuda {

// Sizes are multiples of it.
constexpr std::size_t kGrain = 512;

struct Pool;

struct Block {
    char* data = nullptr;
    std::size_t size = 0;
    cudaStream_t stream = nullptr;
    Pool* pool = nullptr;
    Block *before = nullptr, *after = nullptr;  // neighbours in the segment
    bool in_use = false;
    std::set<cudaStream_t> other_streams = {};  // that have used it
    ExpandableSegment* expandable = nullptr;    // that it lies in, if any
};

struct Smaller {
    using is_transparent = void;
    using Key = std::tuple<cudaStream_t, std::size_t, char*>;
    static Key key(const Block* b) { return {b->stream, b->size, b->data}; }
    static Key key(const Key& k) { return k; }
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
        return key(a) < key(b);
    }
};

// The free blocks that may serve one kind of request: small or large, of everybody or of a graph.
struct Pool {
    bool small = false;
    bool shared = true;  // not a graph's
    bool released = false;
    std::int64_t lent = 0;  // blocks
    std::set<Block*, Smaller> free = {};
    std::map<cudaStream_t, std::unique_ptr<ExpandableSegment>> expandable = {};
};

struct Pools {
    Pool small{.small = true}, large{};
};

struct Waiting {
    Block* block;
    Places places;
};

// What device_memory does is done under the mutex.
struct Memory {
    std::mutex mutex;
    int device = 0;
    Pools pools;
    std::map<device_memory::PoolId, Pools> of_graphs;
    device_memory::PoolId last_pool = 0;
    device_memory::PoolId current_pool = 0;  // 0: none
    cudaStream_t pool_stream = nullptr;
    std::unordered_map<void*, Block*> blocks;  // in use
    std::deque<Waiting> waiting;               // for other streams
    MemoryStats stats;
    std::int64_t limit = INT64_MAX;

    Pool& pool_for(std::size_t size, cudaStream_t stream);
    Block* find(Pool& pool, std::size_t size, cudaStream_t stream);
    Block* new_block(Pool& pool, std::size_t size, cudaStream_t stream);
    Block* grow(Pool& pool, std::size_t size, std::size_t step, cudaStream_t stream);
    void split(Block* block, std::size_t size);
    void release(Block* block);
    Block* join(Block* block);
    void collect(bool wait);
    void flush();
    void flush(Pool& pool);
    void drop_released();
    [[noreturn]] void out_of_memory(std::size_t requested) const;
};

}  // namespace axle::inline v0::cuda
