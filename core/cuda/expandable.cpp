// Expandable segments, implemented with the driver's virtual memory functions (cuMemAddressReserve,
// cuMemCreate, cuMemMap, ...). The functions are looked up on first use, because programs do not
// link libcuda.
#include "core/cuda/expandable.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace axle::cuda {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;
// The largest number of bytes mapped by one call. A call of the driver takes tens of microseconds,
// so mapping single pages would take about a second for 30 GB.
constexpr std::size_t kLargestPiece = std::size_t{20} << 20;

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
        unmap_to(0);
        driver().free(begin_, reserved_);
    }

    char* grow(std::size_t bytes) override {
        const std::size_t before = mapped_, end = before + bytes;
        while (mapped_ < end) {
            if (map_piece(std::min(end - mapped_, kLargestPiece))) continue;
            unmap_to(before);  // undoes the part of the growth that succeeded
            return nullptr;
        }
        return reinterpret_cast<char*>(begin_) + before;
    }

    std::size_t shrink(const char* from) override {
        const auto keep = static_cast<std::size_t>(from - reinterpret_cast<const char*>(begin_));
        if (pieces_.empty() || mapped_ - pieces_.back().size < keep) return 0;
        // Waits for queued work that may still use the pieces.
        if (cudaDeviceSynchronize() != cudaSuccess) {
            cudaGetLastError();
            return 0;
        }
        return unmap_to(keep);
    }

  private:
    // Memory that was mapped, and is unmapped, with one call.
    struct Piece {
        CUmemGenericAllocationHandle handle;
        std::size_t size;
    };

    // Unmaps the pieces that begin at or after the offset `keep`. Returns their size.
    std::size_t unmap_to(std::size_t keep) {
        const std::size_t before = mapped_;
        while (!pieces_.empty() && mapped_ - pieces_.back().size >= keep) {
            const Piece last = pieces_.back();
            mapped_ -= last.size;
            driver().unmap(begin_ + mapped_, last.size);
            driver().release(last.handle);
            pieces_.pop_back();
        }
        return before - mapped_;
    }

    bool map_piece(std::size_t size) {
        if (mapped_ + size > reserved_) return false;
        CUmemAllocationProp kind = {};
        kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        kind.location.id = device_;
        CUmemGenericAllocationHandle piece = 0;
        if (driver().create(&piece, size, &kind, 0) != CUDA_SUCCESS) return false;
        const CUdeviceptr address = begin_ + mapped_;
        CUmemAccessDesc access = {};
        access.location = kind.location;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (driver().map(address, size, 0, piece, 0) != CUDA_SUCCESS) {
            driver().release(piece);
            return false;
        }
        if (driver().set_access(address, size, &access, 1) != CUDA_SUCCESS) {
            driver().unmap(address, size);
            driver().release(piece);
            return false;
        }
        pieces_.push_back({piece, size});
        mapped_ += size;
        return true;
    }

    int device_;
    CUdeviceptr begin_;
    std::size_t reserved_;
    std::size_t mapped_ = 0;  // the size of all pieces
    std::vector<Piece> pieces_;
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
