// Private to core: what streams have come to.
#pragma once

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "core/cuda/context.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/relaxed.h"

namespace axle::inline v0::cuda {

using kernels::check_cuda;
using kernels::Relaxed;

// A place in a stream.
struct Place {
    cudaEvent_t handle = nullptr;

    explicit Place(cudaStream_t stream) {
        check_cuda(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming),
                   "cudaEventCreateWithFlags");
        const cudaError_t error = cudaEventRecord(handle, stream);
        if (error != cudaSuccess) cudaEventDestroy(handle);
        check_cuda(error, "cudaEventRecord");
    }
    Place(Place&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
    Place& operator=(Place&& other) noexcept {
        std::swap(handle, other.handle);
        return *this;
    }
    ~Place() {
        if (handle != nullptr) cudaEventDestroy(handle);
    }
    bool passed() const {
        if (cudaEventQuery(handle) == cudaSuccess) return true;
        cudaGetLastError();
        return false;
    }
};

// The places that some streams have come to. In a stream that is being captured there is none: then
// they are those that the streams have come to once it isn't.
class Places {
  public:
    explicit Places(std::set<cudaStream_t> streams) : streams_(std::move(streams)) { record(); }

    bool passed() {
        const Relaxed relaxed;
        if (!streams_.empty()) record();
        return streams_.empty() &&
               std::ranges::all_of(places_, [](const Place& p) { return p.passed(); });
    }
    void wait() {
        if (!streams_.empty()) record();
        for (const Place& place : places_) cudaEventSynchronize(place.handle);
    }

  private:
    void record() {
        if (std::ranges::any_of(streams_, is_capturing)) return;
        for (const cudaStream_t stream : streams_) places_.emplace_back(stream);
        streams_.clear();
    }

    std::set<cudaStream_t> streams_;  // to be recorded
    std::vector<Place> places_;
};

}  // namespace axle::inline v0::cuda
