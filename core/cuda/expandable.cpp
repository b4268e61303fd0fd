// Expandable segments, implemented with the driver's virtual memory functions (cuMemAddressReserve,
// cuMemCreate, cuMemMap, ...). The functions are looked up on first use, because programs do not
// link libcuda.
#include "core/cuda/expandable.h"

#include <cstdlib>
#include <string>

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace axle::cuda {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;

template <class F>
void find(F& function, const char* name, int version) {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        name, &address, static_cast<unsigned>(version), cudaEnableDefault, &found);
    function = error == cudaSuccess && found == cudaDriverEntryPointSuccess
                   ? reinterpret_cast<F>(address)
                   : nullptr;
}

struct Driver {
    decltype(&cuMemAddressReserve) reserve = nullptr;
    decltype(&cuMemAddressFree) free = nullptr;
    decltype(&cuMemCreate) create = nullptr;
    decltype(&cuMemRelease) release = nullptr;
    decltype(&cuMemMap) map = nullptr;
    decltype(&cuMemUnmap) unmap = nullptr;
    decltype(&cuMemSetAccess) set_access = nullptr;
    bool usable = false;

    Driver() {
        const char* const text = std::getenv("AXLE_CUDA_EXPANDABLE");
        if (text != nullptr && std::string(text) == "0") return;
        find(reserve, "cuMemAddressReserve", 10020);
        find(free, "cuMemAddressFree", 10020);
        find(create, "cuMemCreate", 10020);
        find(release, "cuMemRelease", 10020);
        find(map, "cuMemMap", 10020);
        find(unmap, "cuMemUnmap", 10020);
        find(set_access, "cuMemSetAccess", 10020);
        usable = reserve && free && create && release && map && unmap && set_access;
        cudaGetLastError();
    }
};

const Driver& driver() {
    static const Driver instance;
    return instance;
}

class MappedSegment final : public ExpandableSegment {
  public:
    MappedSegment(int device, CUdeviceptr begin, std::size_t reserved)
        : device_(device), begin_(begin), reserved_(reserved) {}
    ~MappedSegment() override {
        unmap_from(0);
        driver().free(begin_, reserved_);
    }

    char* grow(std::size_t bytes) override {
        const std::size_t before = mapped();
        while (mapped() < before + bytes) {
            if (map_page()) continue;
            // Undoes the part of the growth that succeeded.
            unmap_from(before / kPage);
            return nullptr;
        }
        return reinterpret_cast<char*>(begin_) + before;
    }

    std::size_t shrink(const char* from) override {
        const auto keep =
            (static_cast<std::size_t>(from - reinterpret_cast<const char*>(begin_)) + kPage - 1) /
            kPage;
        if (pages_.size() <= keep) return 0;
        // Waits for queued work that may still use the pages.
        if (cudaDeviceSynchronize() != cudaSuccess) {
            cudaGetLastError();
            return 0;
        }
        return unmap_from(keep);
    }

  private:
    std::size_t mapped() const { return pages_.size() * kPage; }

    std::size_t unmap_from(std::size_t page) {
        const std::size_t before = mapped();
        for (; pages_.size() > page; pages_.pop_back()) {
            driver().unmap(begin_ + (pages_.size() - 1) * kPage, kPage);
            driver().release(pages_.back());
        }
        return before - mapped();
    }

    bool map_page() {
        if (mapped() + kPage > reserved_) return false;
        CUmemAllocationProp kind = {};
        kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        kind.location.id = device_;
        CUmemGenericAllocationHandle page = 0;
        if (driver().create(&page, kPage, &kind, 0) != CUDA_SUCCESS) return false;
        const CUdeviceptr address = begin_ + mapped();
        CUmemAccessDesc access = {};
        access.location = kind.location;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (driver().map(address, kPage, 0, page, 0) != CUDA_SUCCESS) {
            driver().release(page);
            return false;
        }
        if (driver().set_access(address, kPage, &access, 1) != CUDA_SUCCESS) {
            driver().unmap(address, kPage);
            driver().release(page);
            return false;
        }
        pages_.push_back(page);
        return true;
    }

    int device_;
    CUdeviceptr begin_;
    std::size_t reserved_;
    std::vector<CUmemGenericAllocationHandle> pages_;
};

}  // namespace

std::unique_ptr<ExpandableSegment> ExpandableSegment::create(int device) {
    if (!driver().usable) return nullptr;
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
        cudaGetLastError();
        return nullptr;
    }
    const std::size_t reserved = (total + total / 8) / kPage * kPage;
    CUdeviceptr begin = 0;
    if (driver().reserve(&begin, reserved, 0, 0, 0) != CUDA_SUCCESS) return nullptr;
    return std::make_unique<MappedSegment>(device, begin, reserved);
}

}  // namespace axle::cuda
