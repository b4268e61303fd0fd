// The memory functions of the simulated CUDA runtime and driver.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <sys/mman.h>

#include "tests/simulator/runtime_state.h"

namespace axle::kernels::simulator {
namespace {

void* allocate(std::size_t size) {
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
    const AccessScope access;
    std::memset(block, 0xff, size);
    return block;
}

bool release(void* block) {
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
    // Whole pages are returned to the system; other pages are shared with neighboring blocks.
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

// --- memory mapped in pieces (driver functions)

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
    count_call("cuMemCreate");
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
// Returns the range whose mapped part ends at `end`.
auto range_to(const char* end) {
    auto found = device().ranges.upper_bound(const_cast<char*>(end));
    if (found == device().ranges.begin()) return device().ranges.end();
    --found;
    return found->first + found->second.mapped == end ? found : device().ranges.end();
}
CUresult map_piece(CUdeviceptr place, std::size_t size, std::size_t, CUmemGenericAllocationHandle,
                   unsigned long long) {
    count_call("cuMemMap");
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

void* memory_function(const char* name) {
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
    return known == functions.end() ? nullptr : known->second;
}

}  // namespace axle::kernels::simulator

using namespace axle::kernels::simulator;  // NOLINT(google-build-using-namespace)

extern "C" {

cudaError_t cudaMalloc(void** block, std::size_t size) {
    AXLE_LOCKED;
    if (any_capture()) return result(cudaErrorStreamCaptureUnsupported);
    *block = allocate(size);
    return result(*block == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFree(void* block) {
    AXLE_LOCKED;
    if (block == nullptr) return cudaSuccess;
    if (any_capture()) return result(cudaErrorStreamCaptureUnsupported);
    drain_all();
    return result(release(block) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaMallocAsync(void** block, std::size_t size, cudaStream_t) {
    AXLE_LOCKED;
    *block = allocate(size);
    return result(*block == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
    AXLE_LOCKED;
    queue(stream, [block] { release(block); });
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
        if (stream_of(stream).capture) return result(cudaErrorStreamCaptureUnsupported);
        // The call copies the data before it returns.
        const auto* bytes = static_cast<const char*>(from);
        queue(stream, [to, staged = std::vector<char>(bytes, bytes + size)] {
            std::memcpy(to, staged.data(), staged.size());
        });
        return cudaSuccess;
    }
    queue(stream, [=] { std::memcpy(to, from, size); });
    if (kind == cudaMemcpyDeviceToHost && is_pageable(to)) {
        if (stream_of(stream).capture) return result(cudaErrorStreamCaptureUnsupported);
        drain(stream_of(stream), stream_of(stream).queued);
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

}  // extern "C"
