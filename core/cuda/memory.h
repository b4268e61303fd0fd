// Private to core: the caching allocators of device memory and of pinned host memory.
//
// A block freed on a stream can be reused on the same stream immediately, because the stream keeps
// the order. A block that other streams also used (record_stream) waits for them first. All
// functions can be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "core/memory/memory.h"

namespace axle::cuda {

namespace device_memory {

// Returns uninitialized memory for work on the stream, aligned to 512 bytes. size must not be 0. If
// the driver has no memory, flushes the cache and retries, then throws OutOfMemory.
void* allocate(int device, std::size_t size, cudaStream_t stream);
void deallocate(int device, void* block) noexcept;
// Declares that work queued on another stream than the block's own uses the block.
void record_stream(int device, void* block, cudaStream_t stream);

MemoryStats stats(int device);
void reset_peak(int device);
void empty_cache(int device);
void set_limit(int device, std::int64_t bytes);

// Identifies the memory pool of a CUDA graph. Blocks allocated on `stream` between begin_pool and
// end_pool are taken from the pool and return to it, so that replays find them at the same
// addresses. The memory is returned to the driver when the pool is released and its last block is
// freed.
using PoolId = std::uint64_t;
PoolId create_pool(int device);
void begin_pool(int device, PoolId pool, cudaStream_t stream);
void end_pool(int device, PoolId pool);
void release_pool(int device, PoolId pool) noexcept;

}  // namespace device_memory

namespace pinned_memory {

// Returns page-locked host memory aligned to 64 bytes. size must not be 0.
void* allocate(std::size_t size);
void deallocate(void* block) noexcept;
// Declares that work on the stream uses the block, which is then reused only after that work is
// done.
void record_stream(void* block, cudaStream_t stream);
bool owns(const void* block);

}  // namespace pinned_memory

}  // namespace axle::cuda
