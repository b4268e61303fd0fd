// Private to core: the caching allocators of device memory and of pinned host memory.
//
// A block freed on a stream can be reused on the same stream immediately, because the stream runs
// work in order. If other streams also used the block (record_stream), it is reused only after
// their work on it is done. All functions can be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "core/memory/memory.h"

namespace axle::cuda {

namespace device_memory {

// Returns `size` bytes of uninitialized memory for work on the stream, aligned to 512 bytes. size
// must not be 0. If the driver is out of memory, empties the cache and retries, then throws
// OutOfMemory.
void* allocate(int device, std::size_t size, cudaStream_t stream);
void deallocate(int device, void* block) noexcept;
// Declares that work queued on `stream` uses the block. Has no effect for the block's own stream.
void record_stream(int device, void* block, cudaStream_t stream);

MemoryStats stats(int device);
void reset_peak(int device);
void empty_cache(int device);
void set_limit(int device, std::int64_t bytes);

// Identifies a memory pool, which one or more CUDA graphs use. Between begin_pool and end_pool,
// blocks for `stream`, and for other streams that take part in its capture, are allocated from the
// pool. Freed blocks return to the pool, so that replays use the same addresses. After the pool is
// released and its last block is freed, the memory is returned to the driver. begin_pool() throws
// UsageError if another pool of the device has begun and not ended.
using PoolId = std::uint64_t;
PoolId create_pool(int device);
void begin_pool(int device, PoolId pool, cudaStream_t stream);
void end_pool(int device, PoolId pool);
void release_pool(int device, PoolId pool) noexcept;

}  // namespace device_memory

namespace pinned_memory {

// Returns `size` bytes of page-locked host memory aligned to 64 bytes. size must not be 0. Throws
// OutOfMemory.
void* allocate(std::size_t size);
void deallocate(void* block) noexcept;
// Declares that work queued on the stream uses the block. The block is reused only after this work
// is done.
void record_stream(void* block, cudaStream_t stream);
// Returns whether the address is within a block in use.
bool owns(const void* block);

}  // namespace pinned_memory

}  // namespace axle::cuda
