// Segments are taken from the driver and cut into blocks; a freed block joins its free neighbours.
// Requests up to 1 MiB share segments of 2 MiB, larger ones those of 20 MiB or, beyond 10 MiB, have
// segments of their own, so that small tensors don't break up what large ones need. A request takes
// the smallest free block of its stream that fits. Where the driver can map memory piece by piece,
// a stream has one segment of each kind that grows at its end (expandable.h), and nothing is lost
// between segments.
#include "core/cuda/memory.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/cuda/context.h"
#include "core/cuda/expandable.h"
#include "core/profiler.h"
#include "kernels/cuda/check.h"
#include "kernels/error.h"

namespace axle::inline v0::cuda {

using kernels::check_cuda;

namespace {

constexpr std::size_t kGrain = 512;
constexpr std::size_t kSmall = std::size_t{1} << 20;
constexpr std::size_t kSmallSegment = std::size_t{2} << 20;
constexpr std::size_t kMiddle = std::size_t{10} << 20;
constexpr std::size_t kMiddleSegment = std::size_t{20} << 20;
constexpr std::size_t kPage = std::size_t{2} << 20;

std::size_t round_up(std::size_t size, std::size_t grain) {
    return (size + grain - 1) / grain * grain;
}

// While it lives, calls that a capture would refuse are allowed on this thread: they have nothing
// to do with the captured stream.
class Relaxed {
  public:
    Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    Relaxed(const Relaxed&) = delete;
    Relaxed& operator=(const Relaxed&) = delete;

  private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

struct Event {
    cudaEvent_t handle = nullptr;

    explicit Event(cudaStream_t stream) {
        check_cuda(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming),
                   "cudaEventCreateWithFlags");
        const cudaError_t error = cudaEventRecord(handle, stream);
        if (error != cudaSuccess) cudaEventDestroy(handle);
        check_cuda(error, "cudaEventRecord");
    }
    Event(Event&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
    Event& operator=(Event&& other) noexcept {
        std::swap(handle, other.handle);
        return *this;
    }
    ~Event() {
        if (handle != nullptr) cudaEventDestroy(handle);
    }
    bool passed() const {
        if (cudaEventQuery(handle) == cudaSuccess) return true;
        cudaGetLastError();
        return false;
    }
};

std::vector<Event> events_of(const std::set<cudaStream_t>& streams) {
    std::vector<Event> events;
    for (const cudaStream_t stream : streams) events.emplace_back(stream);
    return events;
}

bool all_passed(const std::vector<Event>& events) {
    return std::ranges::all_of(events, [](const Event& e) { return e.passed(); });
}

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
    std::set<Block*, Smaller> free = {};
    std::map<cudaStream_t, std::unique_ptr<ExpandableSegment>> expandable = {};
};

struct Pools {
    Pool small{.small = true}, large{};
};

struct Waiting {
    Block* block;
    std::vector<Event> events;
};

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
    Block* grow(Pool& pool, std::size_t size, cudaStream_t stream);
    void split(Block* block, std::size_t size);
    void release(Block* block);
    Block* join(Block* block);
    void collect(bool wait);
    void flush();
    void flush(Pool& pool);
    void drop_released();
    [[noreturn]] void out_of_memory(std::size_t requested) const;
};

// Never destroyed: tensors may outlive it.
Memory& memory(int device) {
    static std::mutex mutex;
    static auto* const all = new std::map<int, std::unique_ptr<Memory>>;
    const std::lock_guard lock(mutex);
    std::unique_ptr<Memory>& m = (*all)[device];
    if (!m) {
        m = std::make_unique<Memory>();
        m->device = device;
    }
    return *m;
}

// AXLE_CUDA_CACHING=0 takes every block from the driver, where a memory checker sees it.
bool caching() {
    static const bool on = [] {
        const char* const text = std::getenv("AXLE_CUDA_CACHING");
        return text == nullptr || std::string(text) != "0";
    }();
    return on;
}

void* from_driver(std::size_t size) {
    const Relaxed relaxed;
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, size);
    if (error == cudaSuccess) return data;
    cudaGetLastError();
    if (error != cudaErrorMemoryAllocation) check_cuda(error, "cudaMalloc");
    return nullptr;
}

void to_driver(void* data) {
    const Relaxed relaxed;
    cudaFree(data);
}

Pool& Memory::pool_for(std::size_t size, cudaStream_t stream) {
    Pools& p = current_pool != 0 && stream == pool_stream ? of_graphs.at(current_pool) : pools;
    return size <= kSmall ? p.small : p.large;
}

Block* Memory::find(Pool& pool, std::size_t size, cudaStream_t stream) {
    const auto found = pool.free.lower_bound(Smaller::Key{stream, size, nullptr});
    if (found == pool.free.end() || (*found)->stream != stream) return nullptr;
    Block* const block = *found;
    pool.free.erase(found);
    return block;
}

// The expandable segment's free end, made large enough; null where the driver can't, or is out of
// memory.
Block* Memory::grow(Pool& pool, std::size_t size, cudaStream_t stream) {
    auto& segment = pool.expandable[stream];
    if (!segment) segment = ExpandableSegment::create(device);
    if (!segment) return nullptr;
    Block* last = static_cast<Block*>(segment->last_block);
    const std::size_t there = last != nullptr && !last->in_use ? last->size : 0;
    const std::size_t step = pool.small ? kSmallSegment : kMiddleSegment;
    const std::size_t more = round_up(std::max(size - there, step), kPage);
    if (static_cast<std::int64_t>(more) > limit - stats.reserved) return nullptr;
    const Relaxed relaxed;
    char* const data = segment->grow(more);
    if (data == nullptr) return nullptr;
    stats.reserved += static_cast<std::int64_t>(more);
    ++stats.system_allocations;
    if (there > 0) {
        pool.free.erase(last);
        last->size += more;
        return last;
    }
    auto* const block = new Block{data, more, stream, &pool};
    block->expandable = segment.get();
    block->before = last;
    if (last != nullptr) last->after = block;
    segment->last_block = block;
    return block;
}

Block* Memory::new_block(Pool& pool, std::size_t size, cudaStream_t stream) {
    if (caching())
        if (Block* const block = grow(pool, size, stream)) return block;
    std::size_t segment = pool.small ? kSmallSegment : kMiddleSegment;
    if (!pool.small && size > kMiddle) segment = round_up(size, kPage);
    if (!caching()) segment = size;
    if (static_cast<std::int64_t>(segment) > limit - stats.reserved) return nullptr;
    void* const data = from_driver(segment);
    if (data == nullptr) return nullptr;
    stats.reserved += static_cast<std::int64_t>(segment);
    ++stats.system_allocations;
    return new Block{static_cast<char*>(data), segment, stream, &pool};
}

// Keeps `size` bytes in the block and frees the rest, if that is worth it.
void Memory::split(Block* block, std::size_t size) {
    const std::size_t rest = block->size - size;
    if (rest < kGrain || (!block->pool->small && rest <= kSmall && !block->expandable)) return;
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

// With the free neighbours. None of the blocks is in the list of free ones afterwards.
Block* Memory::join(Block* block) {
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
    block = join(block);
    const bool whole = block->before == nullptr && block->after == nullptr;
    if (!caching() && whole) {
        stats.reserved -= static_cast<std::int64_t>(block->size);
        to_driver(block->data);
        delete block;
        return;
    }
    pool.free.insert(block);
    if (pool.released) flush(pool);
}

// Takes back the blocks whose other streams have passed.
void Memory::collect(bool wait) {
    for (auto w = waiting.begin(); w != waiting.end();) {
        if (wait)
            for (const Event& event : w->events) cudaEventSynchronize(event.handle);
        if (!wait && !all_passed(w->events)) {
            ++w;
            continue;
        }
        Block* const block = w->block;
        w = waiting.erase(w);
        release(block);
    }
}

void Memory::flush(Pool& pool) {
    for (auto it = pool.free.begin(); it != pool.free.end();) {
        Block* const block = *it;
        if (block->expandable != nullptr) {
            // Whole pages at the end go back; the segment's addresses stay.
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
    collect(true);
    flush(pools.small);
    flush(pools.large);
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

}  // namespace

namespace device_memory {

void* allocate(int device, std::size_t requested, cudaStream_t stream) {
    set_device(device);
    Memory& m = memory(device);
    const std::lock_guard lock(m.mutex);
    if (requested > std::size_t{1} << 47) m.out_of_memory(requested);
    const std::size_t size = round_up(requested, kGrain);
    Pool& pool = m.pool_for(size, stream);
    m.collect(false);
    Block* block = m.find(pool, size, stream);
    if (block == nullptr) block = m.new_block(pool, size, stream);
    if (block == nullptr) {
        if (!is_capturing(stream)) m.flush();
        block = m.new_block(pool, size, stream);
    }
    if (block == nullptr) m.out_of_memory(requested);
    block->in_use = true;
    m.split(block, size);
    m.blocks[block->data] = block;
    MemoryStats& s = m.stats;
    ++s.allocations;
    s.current += static_cast<std::int64_t>(block->size);
    s.peak = std::max(s.peak, s.current);
    if (profiler::enabled())
        profiler::note_memory(static_cast<std::int64_t>(block->size), s.current, s.reserved);
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
            const std::set<cudaStream_t> streams = std::exchange(block->other_streams, {});
            m.waiting.push_back({block, events_of(streams)});
            return;
        } catch (...) {
            cudaDeviceSynchronize();  // the slow way to the same end
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
    cudaDeviceSynchronize();
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
    Pools& p = m.of_graphs[++m.last_pool];
    p.small.small = true;
    p.small.shared = p.large.shared = false;
    return m.last_pool;
}

void begin_pool(int device, PoolId pool, cudaStream_t stream) {
    Memory& m = memory(device);
    const std::lock_guard lock(m.mutex);
    if (m.current_pool != 0) throw UsageError("graph: another capture is under way on this device");
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
    Pools& p = m.of_graphs.at(pool);
    p.small.released = p.large.released = true;
    m.flush(p.small);
    m.flush(p.large);
}

}  // namespace device_memory

// --- pinned host memory

namespace pinned_memory {
namespace {

struct PinnedBlock {
    std::size_t size = 0;
    std::set<cudaStream_t> streams = {};
};
struct PinnedWaiting {
    void* data;
    std::size_t size;
    std::vector<Event> events;
};
// Powers of two, from 512 bytes.
struct Cache {
    std::mutex mutex;
    std::map<std::size_t, std::vector<void*>> free;
    std::map<void*, PinnedBlock> blocks;  // in use
    std::deque<PinnedWaiting> waiting;
};
Cache& cache() {
    static auto* const instance = new Cache;
    return *instance;
}

}  // namespace

void* allocate(std::size_t requested) {
    Cache& c = cache();
    const std::lock_guard lock(c.mutex);
    std::size_t size = kGrain;
    while (size < requested) size *= 2;
    while (!c.waiting.empty() && all_passed(c.waiting.front().events)) {
        c.free[c.waiting.front().size].push_back(c.waiting.front().data);
        c.waiting.pop_front();
    }
    std::vector<void*>& free = c.free[size];
    void* data = nullptr;
    if (!free.empty()) {
        data = free.back();
        free.pop_back();
    } else {
        const Relaxed relaxed;
        if (cudaHostAlloc(&data, size, cudaHostAllocPortable) != cudaSuccess) {
            cudaGetLastError();
            throw OutOfMemory(str(kernels::current_op, ": no page-locked host memory: ", requested,
                                  " bytes requested"),
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
            c.waiting.push_back({data, block.size, events_of(block.streams)});
    } catch (...) {
        cudaFreeHost(data);  // waits for all work
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

}  // namespace pinned_memory

}  // namespace axle::inline v0::cuda
