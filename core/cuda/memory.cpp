#include "core/cuda/memory.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "core/cuda/blocks.h"
#include "core/cuda/context.h"
#include "core/profiler/profiler.h"
#include "kernels/error.h"

namespace axle::cuda {
namespace {

constexpr int kMaxDevices = 64;

// Returns the allocator of a device. It is never destroyed because tensors can outlive static
// objects. Throws DeviceError unless the index is in [0, kMaxDevices).
Memory& memory(int device) {
    static auto* const all = [] {
        auto* const made = new std::array<Memory, kMaxDevices>;
        for (int i = 0; i < kMaxDevices; ++i) (*made)[static_cast<std::size_t>(i)].device = i;
        return made;
    }();
    if (device < 0 || device >= kMaxDevices)
        throw DeviceError(
            str("cuda:", device, ": the device index must be from 0 to ", kMaxDevices - 1));
    return (*all)[static_cast<std::size_t>(device)];
}

}  // namespace

namespace device_memory {

void* allocate(int device, std::size_t requested, cudaStream_t stream) {
    set_device(device);
    Memory& m = memory(device);
    const std::lock_guard lock(m.mutex);
    if (requested > std::size_t{1} << 47) m.out_of_memory(requested);
    const std::size_t size = (requested + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
    Pool& pool = m.pool_for(size, stream);
    m.collect_pending(false);
    Block* block = m.find(pool, size, stream);
    if (block == nullptr) block = m.new_block(pool, size, stream);
    if (block == nullptr) {
        m.flush();
        block = m.find(pool, size, stream);
        if (block == nullptr) block = m.new_block(pool, size, stream);
    }
    if (block == nullptr) m.out_of_memory(requested);
    block->in_use = true;
    ++pool.blocks_in_use;
    m.split(block, size);
    m.blocks[block->data] = block;
    MemoryStats& s = m.stats;
    ++s.allocations;
    s.current += static_cast<std::int64_t>(block->size);
    s.peak = std::max(s.peak, s.current);
    if (profiler::enabled())
        profiler::record_memory(static_cast<std::int64_t>(block->size), s.current, s.reserved);
    return block->data;
}

void deallocate(int device, void* data) noexcept {
    if (data == nullptr) return;
    Memory& m = memory(device);
    const std::lock_guard lock(m.mutex);
    const auto found = m.blocks.find(data);
    Block* const block = found->second;
    m.blocks.erase(found);
    m.stats.current -= static_cast<std::int64_t>(block->size);
    if (!block->other_streams.empty()) {
        try {
            set_device(device);
            m.pending_frees.push_back(
                {block, StreamEvents(std::exchange(block->other_streams, {}))});
            return;
        } catch (...) {
            cudaDeviceSynchronize();  // waits for more work than necessary
        }
    }
    m.release(block);
}

void record_stream(int device, void* data, cudaStream_t stream) {
    Memory& m = memory(device);
    const std::lock_guard lock(m.mutex);
    const auto found = m.blocks.find(data);
    if (found == m.blocks.end() || found->second->stream == stream) return;
    found->second->other_streams.insert(stream);
}

MemoryStats stats(int device) {
    Memory& m = memory(device);
    const std::lock_guard lock(m.mutex);
    return m.stats;
}

void reset_peak(int device) {
    Memory& m = memory(device);
    const std::lock_guard lock(m.mutex);
    m.stats.peak = m.stats.current;
    m.stats.allocations = m.stats.system_allocations = 0;
}

void empty_cache(int device) {
    set_device(device);
    Memory& m = memory(device);
    const std::lock_guard lock(m.mutex);
    m.flush();
}

void set_limit(int device, std::int64_t bytes) {
    if (bytes < 0) throw ValueError(str("set_memory_limit: bytes can't be negative: ", bytes));
    Memory& m = memory(device);
    const std::lock_guard lock(m.mutex);
    m.limit = bytes == 0 ? INT64_MAX : bytes;
}

PoolId create_pool(int device) {
    Memory& m = memory(device);
    const std::lock_guard lock(m.mutex);
    Pools& p = m.graph_pools[++m.last_pool];
    p.small.small = true;
    p.small.shared = p.large.shared = false;
    return m.last_pool;
}

void begin_pool(int device, PoolId pool, cudaStream_t stream) {
    Memory& m = memory(device);
    const std::lock_guard lock(m.mutex);
    if (m.current_pool != 0)
        throw UsageError(
            str("GraphCapture: another capture is active on cuda:", device, "; end it first"));
    m.current_pool = pool;
    m.pool_stream = stream;
}

void end_pool(int device, PoolId) {
    Memory& m = memory(device);
    const std::lock_guard lock(m.mutex);
    m.current_pool = 0;
}

void release_pool(int device, PoolId pool) noexcept {
    Memory& m = memory(device);
    const std::lock_guard lock(m.mutex);
    Pools& p = m.graph_pools.at(pool);
    p.small.released = p.large.released = true;
    m.erase_released_pools();
}

}  // namespace device_memory

}  // namespace axle::cuda
