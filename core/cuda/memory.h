// Private to core: the caching allocator of device memory, and that of pinned host memory.
//
// A stream that frees a block may be given it again at once: the stream keeps the order. A block
// that other streams have used as well (record_stream) waits for them first. All functions may be
// called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "core/memory/memory.h"

namespace axle::inline v0::cuda {

namespace device_memory {

// Bytes at a multiple of 512, not initialised, for work on the stream. size is not 0. After a
// failure once more with the cache flushed, then OutOfMemory.
void* allocate(int device, std::size_t size, cudaStream_t stream);
void deallocate(int device, void* block) noexcept;
// The block is used by work that is queued on another stream than its own.
void record_stream(int device, void* block, cudaStream_t stream);

MemoryStats stats(int device);
void reset_peak(int device);
void empty_cache(int device);
void set_limit(int device, std::int64_t bytes);

// A pool that lends its memory to one graph: blocks allocated on `stream` between begin and end
// come from it alone and go back to it alone, so that a replay finds them where they were. Memory
// is given back when the pool is released and its last block is freed.
using PoolId = std::uint64_t;
PoolId create_pool(int device);
void begin_pool(int device, PoolId pool, cudaStream_t stream);
void end_pool(int device, PoolId pool);
void release_pool(int device, PoolId pool) noexcept;

}  // namespace device_memory

namespace pinned_memory {

// Page-locked host memory at a multiple of 64. size is not 0.
void* allocate(std::size_t size);
void deallocate(void* block) noexcept;
// Work on the stream reads or writes the block: it is lent again when the work is done.
void record_stream(void* block, cudaStream_t stream);
bool owns(const void* block);

}  // namespace pinned_memory

}  // namespace axle::inline v0::cuda
