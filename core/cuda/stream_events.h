// Private to core: waits for the work that is queued on a set of streams.
#pragma once

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "core/cuda/context.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/relaxed.h"

namespace axle::cuda {

using kernels::check_cuda;
using kernels::RelaxedCaptureScope;

// Makes the device of a stream the current device until the end of the scope. An event can be
// recorded only on streams of the device on which it was created.
class StreamDeviceScope {
  public:
    explicit StreamDeviceScope(cudaStream_t stream) {
        int device = 0;
        check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
        check_cuda(cudaStreamGetDevice(stream, &device), "cudaStreamGetDevice");
        if (device == before_) return;
        check_cuda(cudaSetDevice(device), "cudaSetDevice");
        changed_ = true;
    }
    ~StreamDeviceScope() {
        if (changed_) cudaSetDevice(before_);
    }
    StreamDeviceScope(const StreamDeviceScope&) = delete;
    StreamDeviceScope& operator=(const StreamDeviceScope&) = delete;

  private:
    int before_ = 0;
    bool changed_ = false;
};

// A CUDA event recorded on a stream of any device.
struct RecordedEvent {
    cudaEvent_t handle = nullptr;

    explicit RecordedEvent(cudaStream_t stream) {
        const StreamDeviceScope scope(stream);
        check_cuda(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming),
                   "cudaEventCreateWithFlags");
        const cudaError_t error = cudaEventRecord(handle, stream);
        if (error != cudaSuccess) cudaEventDestroy(handle);
        check_cuda(error, "cudaEventRecord");
    }
    RecordedEvent(RecordedEvent&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
    RecordedEvent& operator=(RecordedEvent&& other) noexcept {
        std::swap(handle, other.handle);
        return *this;
    }
    ~RecordedEvent() {
        if (handle != nullptr) cudaEventDestroy(handle);
    }
    bool passed() const {
        if (cudaEventQuery(handle) == cudaSuccess) return true;
        cudaGetLastError();
        return false;
    }
};

// One recorded event for each stream of a set. Events cannot be recorded during a capture. If a
// stream of the set is being captured, all events are recorded after the capture has ended.
class StreamEvents {
  public:
    explicit StreamEvents(std::set<cudaStream_t> streams) : streams_(std::move(streams)) {
        record();
    }

    bool passed() {
        const RelaxedCaptureScope relaxed;
        if (!streams_.empty()) record();
        return streams_.empty() &&
               std::ranges::all_of(events_, [](const RecordedEvent& p) { return p.passed(); });
    }
    void wait() {
        if (!streams_.empty()) record();
        for (const RecordedEvent& event : events_) cudaEventSynchronize(event.handle);
    }

  private:
    void record() {
        if (std::ranges::any_of(streams_, is_capturing)) return;
        for (const cudaStream_t stream : streams_) events_.emplace_back(stream);
        streams_.clear();
    }

    std::set<cudaStream_t> streams_;  // streams whose event is not recorded yet
    std::vector<RecordedEvent> events_;
};

}  // namespace axle::cuda
