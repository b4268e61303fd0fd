// The caching device allocator. Segments are allocated from the driver and split into blocks; a
// freed block is merged with free neighbors. Requests up to 1 MiB share segments of 2 MiB, so that
// small tensors do not fragment the memory for large tensors. Requests up to 10 MiB share segments
// of 20 MiB, and each larger request gets a segment of its own. A request gets the smallest free
// block of its stream that is large enough. If the driver can map single pages, each stream has one
// growing segment of each kind (expandable.h), which avoids fragmentation between segments.
#include "core/cuda/blocks.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>

#include "kernels/cuda/check.h"
#include "kernels/error.h"

namespace axle::cuda {

namespace {

constexpr std::size_t kSmall = std::size_t{1} << 20;
constexpr std::size_t kSmallSegment = std::size_t{2} << 20;
constexpr std::size_t kMedium = std::size_t{10} << 20;
constexpr std::size_t kMediumSegment = std::size_t{20} << 20;
constexpr std::size_t kPage = std::size_t{2} << 20;

std::size_t round_up(std::size_t size, std::size_t grain) {
    return (size + grain - 1) / grain * grain;
}

// Returns false if AXLE_CUDA_CACHING=0. Then every block is allocated from the driver, so that
// memory checkers can detect errors.
bool caching() {
    static const bool on = [] {
        const char* const text = std::getenv("AXLE_CUDA_CACHING");
        return text == nullptr || std::string(text) != "0";
    }();
    return on;
}

void* from_driver(std::size_t size) {
    const RelaxedCaptureScope relaxed;
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, size);
    if (error == cudaSuccess) return data;
    cudaGetLastError();
    if (error != cudaErrorMemoryAllocation) check_cuda(error, "cudaMalloc");
    return nullptr;
}

void to_driver(void* data) {
    const RelaxedCaptureScope relaxed;
    cudaFree(data);
}

}  // namespace

Pool& Memory::pool_for(std::size_t size, cudaStream_t stream) {
    // The graph's pool is also used by other streams that take part in the capture.
    const bool captured = current_pool != 0 && (stream == pool_stream || is_capturing(stream));
    Pools& p = captured ? graph_pools.at(current_pool) : pools;
    return size <= kSmall ? p.small : p.large;
}

Block* Memory::find(Pool& pool, std::size_t size, cudaStream_t stream) {
    const auto found = pool.free.lower_bound(BlockOrder::Key{stream, size, nullptr});
    if (found == pool.free.end() || (*found)->stream != stream) return nullptr;
    Block* const block = *found;
    pool.free.erase(found);
    return block;
}

// Grows the expandable segment until the free block at its end has at least `size` bytes, and
// returns this block. Returns null if the driver does not support this or is out of memory, or if
// the memory limit would be exceeded.
Block* Memory::grow(Pool& pool, std::size_t size, std::size_t step, cudaStream_t stream) {
    const RelaxedCaptureScope relaxed;
    auto& segment = pool.expandable[stream];
    if (!segment) segment = ExpandableSegment::create(device);
    if (!segment) return nullptr;
    Block* last = static_cast<Block*>(segment->last_block);
    const std::size_t free_at_end = last != nullptr && !last->in_use ? last->size : 0;
    const std::size_t added = round_up(size - free_at_end, step);
    if (static_cast<std::int64_t>(added) > limit - stats.reserved) return nullptr;
    char* const data = segment->grow(added);
    if (data == nullptr) return nullptr;
    stats.reserved += static_cast<std::int64_t>(added);
    ++stats.system_allocations;
    if (free_at_end > 0) {
        pool.free.erase(last);
        last->size += added;
        return last;
    }
    auto* const block = new Block{data, added, stream, &pool};
    block->expandable = segment.get();
    block->before = last;
    if (last != nullptr) last->after = block;
    segment->last_block = block;
    return block;
}

Block* Memory::new_block(Pool& pool, std::size_t size, cudaStream_t stream) {
    // If there is not enough memory, retries with the minimum step.
    for (const std::size_t step : {pool.small ? kSmallSegment : kMediumSegment, kPage})
        if (caching())
            if (Block* const block = grow(pool, size, step, stream)) return block;
    std::size_t segment = pool.small ? kSmallSegment : kMediumSegment;
    if (!pool.small && size > kMedium) segment = round_up(size, kPage);
    if (!caching()) segment = size;
    if (static_cast<std::int64_t>(segment) > limit - stats.reserved) return nullptr;
    void* const data = from_driver(segment);
    if (data == nullptr) return nullptr;
    stats.reserved += static_cast<std::int64_t>(segment);
    ++stats.system_allocations;
    return new Block{static_cast<char*>(data), segment, stream, &pool};
}

// Reduces the block to `size` bytes and frees the rest, if the rest is large enough.
void Memory::split(Block* block, std::size_t size) {
    const std::size_t rest = block->size - size;
    if (rest < kBlockAlignment || (!block->pool->small && rest <= kSmall && !block->expandable))
        return;
    auto* const after = new Block{block->data + size, rest, block->stream, block->pool};
    after->expandable = block->expandable;
    after->before = block;
    after->after = block->after;
    if (after->after != nullptr)
        after->after->before = after;
    else if (block->expandable != nullptr)
        block->expandable->last_block = after;
    block->after = after;
    block->size = size;
    block->pool->free.insert(after);
}

// Merges the block with its free neighbors, and removes them from the list of free blocks. Returns
// the merged block.
Block* Memory::merge(Block* block) {
    const auto absorb = [&](Block* left, Block* right) {
        left->size += right->size;
        left->after = right->after;
        if (right->after != nullptr)
            right->after->before = left;
        else if (left->expandable != nullptr)
            left->expandable->last_block = left;
        delete right;
        return left;
    };
    if (Block* const after = block->after; after != nullptr && !after->in_use) {
        block->pool->free.erase(after);
        absorb(block, after);
    }
    if (Block* const before = block->before; before != nullptr && !before->in_use) {
        block->pool->free.erase(before);
        block = absorb(before, block);
    }
    return block;
}

void Memory::release(Block* block) {
    block->in_use = false;
    Pool& pool = *block->pool;
    --pool.blocks_in_use;
    block = merge(block);
    const bool whole = block->before == nullptr && block->after == nullptr;
    if (!caching() && whole && pool.shared) {
        stats.reserved -= static_cast<std::int64_t>(block->size);
        to_driver(block->data);
        delete block;
        return;
    }
    pool.free.insert(block);
    if (pool.released) erase_released_pools();
}

// Frees the blocks that are no longer used by other streams. If `wait` is true, waits for these
// streams.
void Memory::collect_pending(bool wait) {
    for (auto w = pending_frees.begin(); w != pending_frees.end();) {
        if (wait) w->events.wait();
        if (!w->events.passed()) {
            ++w;
            continue;
        }
        Block* const block = w->block;
        w = pending_frees.erase(w);
        release(block);
    }
}

void Memory::flush(Pool& pool) {
    if (current_pool != 0) return;  // waiting for the device would invalidate the capture
    try {
        set_device(device);
    } catch (...) {
        return;  // the process is exiting, so nothing is released
    }
    for (auto it = pool.free.begin(); it != pool.free.end();) {
        Block* const block = *it;
        if (block->expandable != nullptr) {
            // Returns the pieces of memory that lie in the last block to the driver. The address
            // range stays reserved.
            const bool last = block->after == nullptr;
            const std::size_t freed = last ? block->expandable->shrink(block->data) : 0;
            it = pool.free.erase(it);
            stats.reserved -= static_cast<std::int64_t>(freed);
            block->size -= freed;
            if (block->size > 0) {
                it = pool.free.insert(block).first;
                ++it;
                continue;
            }
            block->expandable->last_block = block->before;
            if (block->before != nullptr) block->before->after = nullptr;
            delete block;
            continue;
        }
        if (block->before != nullptr || block->after != nullptr) {
            ++it;
            continue;
        }
        stats.reserved -= static_cast<std::int64_t>(block->size);
        to_driver(block->data);
        delete block;
        it = pool.free.erase(it);
    }
}

void Memory::flush() {
    if (current_pool != 0) return;
    collect_pending(true);
    flush(pools.small);
    flush(pools.large);
    erase_released_pools();
}

// Erases the pools of destroyed graphs and returns their unused memory to the driver.
void Memory::erase_released_pools() {
    for (auto entry = graph_pools.begin(); entry != graph_pools.end();) {
        auto& [small, large] = entry->second;
        if (small.released) flush(small), flush(large);
        const bool gone = small.released && small.blocks_in_use + large.blocks_in_use == 0 &&
                          small.free.empty() && large.free.empty();
        entry = gone ? graph_pools.erase(entry) : std::next(entry);
    }
}

[[noreturn]] void Memory::out_of_memory(std::size_t requested) const {
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    const std::int64_t cached = stats.reserved - stats.current;
    throw OutOfMemory(
        str(kernels::current_op, ": out of memory on cuda:", device, ": ", requested,
            " bytes requested, ", stats.current, " in use, ", cached, " cached, peak ", stats.peak,
            ", ", free, " of ", total, " free", limit == INT64_MAX ? "" : str(", limit ", limit)),
        static_cast<std::int64_t>(requested), stats.current, cached, stats.peak);
}

}  // namespace axle::cuda
