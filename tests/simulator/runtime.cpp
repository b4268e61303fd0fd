// The CUDA runtime's functions that Axle calls: see simulator.h.
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include "tests/sanitized.h"
#include "tests/simulator/run_block.h"
#include "tests/simulator/simulator.h"

struct CUstream_st;

namespace {

using Work = std::function<void()>;
using Captured = std::shared_ptr<std::vector<Work>>;

}  // namespace

struct CUstream_st {
    std::deque<Work> queue;
    std::uint64_t queued = 0, done = 0;
    Captured capture;  // where work goes while the stream is captured
    bool origin = false;
    // Of the origin.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id captor;
    bool broken = false;  // by a call that a capture forbids
};

struct CUevent_st {
    CUstream_st* stream = nullptr;  // null: never recorded
    std::uint64_t position = 0;
    Captured capture;
    std::chrono::steady_clock::time_point passed = {};
};

struct CUgraph_st {
    Captured work;
};
struct CUgraphExec_st {
    Captured work;
};

namespace {

constexpr std::size_t kArena = std::size_t{2} << 30;  // of addresses

// Addresses that pieces of memory are mapped to from the beginning on.
struct Range {
    std::size_t size = 0, mapped = 0;
};

struct Device {
    std::recursive_mutex mutex;
    std::vector<CUstream_st*> streams;
    CUstream_st legacy;
    std::size_t memory = kArena, used = 0;
    std::map<void*, std::size_t> blocks;
    // Without AddressSanitizer, which fences every block itself: device memory lies in one range
    // that is out of reach while nothing runs.
    char* arena = nullptr;
    std::map<std::size_t, std::size_t> gaps;  // by offset
    std::map<char*, Range> ranges;
    std::map<CUmemGenericAllocationHandle, std::size_t> pieces;
    CUmemGenericAllocationHandle last_piece = 0;
    int depth = 0;  // of drain()
    std::set<std::string> started;
};

Device& device() {
    static auto* const instance = [] {
        auto* d = new Device;
        if (!axle::tests::kSanitized) {
            d->arena = static_cast<char*>(mmap(nullptr, kArena, PROT_NONE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
            d->gaps[0] = kArena;
        }
        return d;
    }();
    return *instance;
}

// Before main, for the first use of a library looks there.
[[maybe_unused]] const int libraries = setenv("AXLE_LIBRARY_PATH", AXLE_SIMULATED_LIBRARIES, 0);

thread_local int bus = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t result(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

// Device memory is within reach for a scope.
class Reach {
  public:
    Reach() {
        if (device().depth++ == 0) protect(PROT_READ | PROT_WRITE);
    }
    ~Reach() {
        if (--device().depth == 0) protect(PROT_NONE);
    }

  private:
    static void protect(int access) {
        Device& d = device();
        if (d.arena == nullptr) return;
        mprotect(d.arena, kArena, access);
        for (const auto& [begin, range] : d.ranges)
            if (range.mapped > 0) mprotect(begin, range.mapped, access);
    }
};

CUstream_st& of(cudaStream_t stream) { return stream == nullptr ? device().legacy : *stream; }

void drain(CUstream_st& stream, std::uint64_t position) {
    const Reach reach;
    while (stream.done < position) {
        const Work work = std::move(stream.queue.front());
        stream.queue.pop_front();
        ++stream.done;
        work();
    }
}

void drain_all() {
    Device& d = device();
    drain(d.legacy, d.legacy.queued);
    for (CUstream_st* stream : d.streams) drain(*stream, stream->queued);
}

void queue(cudaStream_t handle, Work work) {
    CUstream_st& stream = of(handle);
    if (stream.capture) {
        stream.capture->push_back(std::move(work));
        return;
    }
    stream.queue.push_back(std::move(work));
    ++stream.queued;
}

thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

// Whether a capture forbids this thread what has nothing to do with its stream. The attempt breaks
// the capture.
bool any_capture() {
    if (capture_mode == cudaStreamCaptureModeRelaxed) return false;
    bool found = false;
    for (CUstream_st* stream : device().streams) {
        if (!stream->capture || !stream->origin || stream->mode == cudaStreamCaptureModeRelaxed)
            continue;
        if (stream->mode == cudaStreamCaptureModeThreadLocal &&
            stream->captor != std::this_thread::get_id())
            continue;
        found = stream->broken = true;
    }
    return found;
}

cudaError_t break_capture(const Captured& capture, cudaError_t error) {
    for (CUstream_st* stream : device().streams)
        if (stream->origin && stream->capture == capture) stream->broken = true;
    return result(error);
}

void* take(std::size_t size) {
    Device& d = device();
    size = (size + 255) / 256 * 256;
    if (size > d.memory - std::min(d.memory, d.used)) return nullptr;
    void* block = nullptr;
    if (d.arena == nullptr) {
        block = std::aligned_alloc(256, size);
    } else {
        for (auto gap = d.gaps.begin(); gap != d.gaps.end(); ++gap) {
            if (gap->second < size) continue;
            block = d.arena + gap->first;
            if (gap->second > size) d.gaps[gap->first + size] = gap->second - size;
            d.gaps.erase(gap);
            break;
        }
    }
    if (block == nullptr) return nullptr;
    d.used += size;
    d.blocks[block] = size;
    const Reach reach;
    std::memset(block, 0xff, size);
    return block;
}

bool give_back(void* block) {
    Device& d = device();
    const auto found = d.blocks.find(block);
    if (found == d.blocks.end()) return false;
    const std::size_t size = found->second;
    d.blocks.erase(found);
    d.used -= size;
    if (d.arena == nullptr) {
        std::free(block);
        return true;
    }
    // Whole pages go back to the system; others are shared with the block's neighbours.
    constexpr std::uintptr_t kPage = 4096;
    const auto begin = (reinterpret_cast<std::uintptr_t>(block) + kPage - 1) / kPage * kPage;
    const auto end = (reinterpret_cast<std::uintptr_t>(block) + size) / kPage * kPage;
    if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    const auto offset = static_cast<std::size_t>(static_cast<char*>(block) - d.arena);
    auto gap = d.gaps.emplace(offset, size).first;
    const auto next = std::next(gap);
    if (next != d.gaps.end() && offset + size == next->first) {
        gap->second += next->second;
        d.gaps.erase(next);
    }
    if (gap != d.gaps.begin()) {
        const auto before = std::prev(gap);
        if (before->first + before->second == gap->first) {
            before->second += gap->second;
            d.gaps.erase(gap);
        }
    }
    return true;
}

std::map<void*, std::size_t>& pinned() {
    static auto* const blocks = new std::map<void*, std::size_t>;
    return *blocks;
}

bool is_pageable(const void* p) {
    const Device& d = device();
    const auto inside = [&](const std::map<void*, std::size_t>& blocks) {
        auto found = blocks.upper_bound(const_cast<void*>(p));
        if (found == blocks.begin()) return false;
        --found;
        return static_cast<const char*>(p) < static_cast<char*>(found->first) + found->second;
    };
    for (const auto& [begin, range] : d.ranges)
        if (p >= begin && p < begin + range.mapped) return false;
    return !inside(d.blocks) && !inside(pinned());
}

// --- memory that is mapped piece by piece

CUresult reserve(CUdeviceptr* begin, std::size_t size, std::size_t, CUdeviceptr,
                 unsigned long long) {
    const std::lock_guard lock(device().mutex);
    void* const range =
        mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    device().ranges[static_cast<char*>(range)].size = size;
    *begin = reinterpret_cast<CUdeviceptr>(range);
    return CUDA_SUCCESS;
}
CUresult free_range(CUdeviceptr begin, std::size_t size) {
    const std::lock_guard lock(device().mutex);
    const auto found = device().ranges.find(reinterpret_cast<char*>(begin));
    if (found == device().ranges.end() || found->second.size != size || found->second.mapped != 0)
        return CUDA_ERROR_INVALID_VALUE;
    munmap(found->first, size);
    device().ranges.erase(found);
    return CUDA_SUCCESS;
}
CUresult create_piece(CUmemGenericAllocationHandle* piece, std::size_t size,
                      const CUmemAllocationProp*, unsigned long long) {
    const std::lock_guard lock(device().mutex);
    Device& d = device();
    if (any_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (size > d.memory - std::min(d.memory, d.used)) return CUDA_ERROR_OUT_OF_MEMORY;
    d.used += size;
    d.pieces[*piece = ++d.last_piece] = size;
    return CUDA_SUCCESS;
}
CUresult release_piece(CUmemGenericAllocationHandle piece) {
    const std::lock_guard lock(device().mutex);
    const auto found = device().pieces.find(piece);
    if (found == device().pieces.end()) return CUDA_ERROR_INVALID_VALUE;
    device().used -= found->second;
    device().pieces.erase(found);
    return CUDA_SUCCESS;
}
// The range that ends, as far as it is mapped, at a place.
auto range_to(const char* end) {
    auto found = device().ranges.upper_bound(const_cast<char*>(end));
    if (found == device().ranges.begin()) return device().ranges.end();
    --found;
    return found->first + found->second.mapped == end ? found : device().ranges.end();
}
CUresult map_piece(CUdeviceptr place, std::size_t size, std::size_t, CUmemGenericAllocationHandle,
                   unsigned long long) {
    const std::lock_guard lock(device().mutex);
    const auto range = range_to(reinterpret_cast<char*>(place));
    if (range == device().ranges.end() || range->second.mapped + size > range->second.size)
        return CUDA_ERROR_INVALID_VALUE;
    range->second.mapped += size;
    return CUDA_SUCCESS;
}
CUresult unmap_piece(CUdeviceptr place, std::size_t size) {
    const std::lock_guard lock(device().mutex);
    char* const begin = reinterpret_cast<char*>(place);
    const auto range = range_to(begin + size);
    if (range == device().ranges.end()) return CUDA_ERROR_INVALID_VALUE;
    range->second.mapped -= size;
    madvise(begin, size, MADV_DONTNEED);
    mprotect(begin, size, PROT_NONE);
    return CUDA_SUCCESS;
}
CUresult set_access(CUdeviceptr place, std::size_t size, const CUmemAccessDesc*, std::size_t) {
    const std::lock_guard lock(device().mutex);
    char* const begin = reinterpret_cast<char*>(place);
    mprotect(begin, size, PROT_READ | PROT_WRITE);
    std::memset(begin, 0xff, size);
    if (device().arena != nullptr && device().depth == 0) mprotect(begin, size, PROT_NONE);
    return CUDA_SUCCESS;
}

}  // namespace

namespace axle::kernels::simulator {

void start(cudaStream_t stream, Extent grid, int threads, std::size_t shared_bytes,
           std::source_location at, std::function<void()> run) {
    const std::lock_guard lock(device().mutex);
    const std::string file = at.file_name();
    device().started.insert(file.substr(file.rfind('/') + 1) + ":" + std::to_string(at.line()));
    queue(stream, [=, run = std::move(run)] { run_grid(grid, threads, shared_bytes, run); });
}

std::set<std::string> started() {
    const std::lock_guard lock(device().mutex);
    return device().started;
}

[[gnu::weak]] bool plugged_in() { return false; }

void set_bus(int to) { bus = to; }

void set_memory(std::size_t bytes) {
    const std::lock_guard lock(device().mutex);
    device().memory = bytes;
}

}  // namespace axle::kernels::simulator

#define AXLE_LOCKED const std::lock_guard axle_lock(device().mutex)

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
    *count = axle::kernels::simulator::plugged_in() ? 1 : 0;
    return result(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaSetDevice(int index) {
    return result(index == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* index) {
    *index = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrMultiProcessorCount:
            *value = 2;
            return cudaSuccess;
        case cudaDevAttrComputeCapabilityMajor:
            *value = 9;
            return cudaSuccess;
        default:
            *value = 0;
            return cudaSuccess;
    }
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {};
    std::strcpy(properties->name, "simulated GPU");
    properties->major = 9;
    properties->pciBusID = bus;
    properties->multiProcessorCount = 2;
    properties->totalGlobalMem = device().memory;
    properties->l2CacheSize = 1 << 20;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
    static const std::map<std::string_view, void*> functions = {
        {"cuMemAddressReserve", reinterpret_cast<void*>(reserve)},
        {"cuMemAddressFree", reinterpret_cast<void*>(free_range)},
        {"cuMemCreate", reinterpret_cast<void*>(create_piece)},
        {"cuMemRelease", reinterpret_cast<void*>(release_piece)},
        {"cuMemMap", reinterpret_cast<void*>(map_piece)},
        {"cuMemUnmap", reinterpret_cast<void*>(unmap_piece)},
        {"cuMemSetAccess", reinterpret_cast<void*>(set_access)},
    };
    const auto known = functions.find(name);
    *function = known == functions.end() ? nullptr : known->second;
    if (found != nullptr)
        *found =
            *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

cudaError_t cudaGetLastError() {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "cudaSuccess";
        case cudaErrorMemoryAllocation:
            return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidDevice:
            return "cudaErrorInvalidDevice";
        case cudaErrorInvalidValue:
            return "cudaErrorInvalidValue";
        case cudaErrorNotReady:
            return "cudaErrorNotReady";
        case cudaErrorStreamCaptureUnsupported:
            return "cudaErrorStreamCaptureUnsupported";
        case cudaErrorStreamCaptureInvalidated:
            return "cudaErrorStreamCaptureInvalidated";
        case cudaErrorCapturedEvent:
            return "cudaErrorCapturedEvent";
        default:
            return "cudaErrorUnknown";
    }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaMalloc(void** block, std::size_t size) {
    AXLE_LOCKED;
    if (any_capture()) return result(cudaErrorStreamCaptureUnsupported);
    *block = take(size);
    return result(*block == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFree(void* block) {
    AXLE_LOCKED;
    if (block == nullptr) return cudaSuccess;
    if (any_capture()) return result(cudaErrorStreamCaptureUnsupported);
    drain_all();
    return result(give_back(block) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaMallocAsync(void** block, std::size_t size, cudaStream_t) {
    AXLE_LOCKED;
    *block = take(size);
    return result(*block == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
    AXLE_LOCKED;
    queue(stream, [block] { give_back(block); });
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    AXLE_LOCKED;
    *total = device().memory;
    *free = device().memory - std::min(device().memory, device().used);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** block, std::size_t size, unsigned int) {
    AXLE_LOCKED;
    if (any_capture()) return result(cudaErrorStreamCaptureUnsupported);
    *block = std::aligned_alloc(256, (size + 255) / 256 * 256);
    pinned()[*block] = size;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void* block) {
    AXLE_LOCKED;
    if (any_capture()) return result(cudaErrorStreamCaptureUnsupported);
    drain_all();
    pinned().erase(block);
    std::free(block);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    AXLE_LOCKED;
    if (kind == cudaMemcpyHostToDevice && is_pageable(from)) {
        if (of(stream).capture) return result(cudaErrorStreamCaptureUnsupported);
        // Staged before the call returns.
        const auto* bytes = static_cast<const char*>(from);
        queue(stream, [to, staged = std::vector<char>(bytes, bytes + size)] {
            std::memcpy(to, staged.data(), staged.size());
        });
        return cudaSuccess;
    }
    queue(stream, [=] { std::memcpy(to, from, size); });
    if (kind == cudaMemcpyDeviceToHost && is_pageable(to)) {
        if (of(stream).capture) return result(cudaErrorStreamCaptureUnsupported);
        drain(of(stream), of(stream).queued);
    }
    return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t size,
                                cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size, cudaMemcpyKind kind) {
    AXLE_LOCKED;
    if (any_capture()) return result(cudaErrorStreamCaptureUnsupported);
    cudaMemcpyAsync(to, from, size, kind, nullptr);
    drain(device().legacy, device().legacy.queued);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t size, cudaStream_t stream) {
    AXLE_LOCKED;
    queue(stream, [=] { std::memset(to, value, size); });
    return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, std::size_t size) {
    AXLE_LOCKED;
    if (any_capture()) return result(cudaErrorStreamCaptureUnsupported);
    return cudaMemsetAsync(to, value, size, nullptr);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void* argument) {
    AXLE_LOCKED;
    queue(stream, [=] { f(argument); });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int, int) {
    AXLE_LOCKED;
    *stream = new CUstream_st;
    device().streams.push_back(*stream);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    AXLE_LOCKED;
    drain(*stream, stream->queued);
    std::erase(device().streams, stream);
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    AXLE_LOCKED;
    if (const Captured& c = of(stream).capture)
        return break_capture(c, cudaErrorStreamCaptureUnsupported);
    drain(of(stream), of(stream).queued);
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    AXLE_LOCKED;
    CUstream_st& s = of(stream);
    if (s.capture) return break_capture(s.capture, cudaErrorStreamCaptureUnsupported);
    if (s.done == s.queued) return cudaSuccess;
    drain(s, s.done + 1);
    return cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize() {
    AXLE_LOCKED;
    // Whatever the mode, and on whichever thread.
    for (const CUstream_st* stream : device().streams)
        if (stream->capture)
            return break_capture(stream->capture, cudaErrorStreamCaptureUnsupported);
    drain_all();
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
    *event = new CUevent_st;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    AXLE_LOCKED;
    if (event->stream != nullptr) drain(*event->stream, event->position);
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    AXLE_LOCKED;
    CUstream_st& s = of(stream);
    event->capture = s.capture;
    if (s.capture) return cudaSuccess;
    queue(stream, [event] { event->passed = std::chrono::steady_clock::now(); });
    event->stream = &s;
    event->position = s.queued;
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    AXLE_LOCKED;
    if (event->capture) return break_capture(event->capture, cudaErrorCapturedEvent);
    if (any_capture()) return result(cudaErrorStreamCaptureUnsupported);
    if (event->stream == nullptr || event->stream->done >= event->position) return cudaSuccess;
    drain(*event->stream, event->stream->done + 1);
    return cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    AXLE_LOCKED;
    if (event->capture) return break_capture(event->capture, cudaErrorCapturedEvent);
    if (any_capture()) return result(cudaErrorStreamCaptureUnsupported);
    if (event->stream != nullptr) drain(*event->stream, event->position);
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
    AXLE_LOCKED;
    *ms = std::chrono::duration<float, std::milli>(to->passed - from->passed).count();
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
    AXLE_LOCKED;
    CUstream_st& s = of(stream);
    if (event->capture) {
        s.capture = event->capture;  // joins the capture; its work is in order there already
        return cudaSuccess;
    }
    if (event->stream == nullptr || s.capture) return cudaSuccess;
    queue(stream, [other = event->stream, position = event->position] { drain(*other, position); });
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    AXLE_LOCKED;
    if (stream == nullptr || stream->capture) return result(cudaErrorStreamCaptureUnsupported);
    stream->capture = std::make_shared<std::vector<Work>>();
    stream->origin = true;
    stream->mode = mode;
    stream->captor = std::this_thread::get_id();
    stream->broken = false;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    AXLE_LOCKED;
    *graph = nullptr;
    if (!stream->capture || !stream->origin) return result(cudaErrorStreamCaptureUnsupported);
    if (stream->mode != cudaStreamCaptureModeRelaxed &&
        stream->captor != std::this_thread::get_id())
        return result(cudaErrorStreamCaptureWrongThread);
    const Captured ended = stream->capture;
    for (CUstream_st* other : device().streams)
        if (other->capture == ended) other->capture = nullptr;
    stream->origin = false;
    if (stream->broken) return result(cudaErrorStreamCaptureInvalidated);
    *graph = new CUgraph_st{ended};
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    AXLE_LOCKED;
    *status = of(stream).capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(*mode, capture_mode);
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    *exec = new CUgraphExec_st{graph->work};
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    AXLE_LOCKED;
    queue(stream, [work = exec->work] {
        for (const Work& step : *work) step();
    });
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete exec;
    return cudaSuccess;
}

}  // extern "C"
