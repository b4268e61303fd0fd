// The state of the simulated CUDA runtime, and its errors.
#include "tests/simulator/runtime_state.h"

#include <cstdlib>

#include <sys/mman.h>

#include "tests/sanitized.h"

namespace axle::kernels::simulator {

namespace {

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

Device& device() {
    static auto* const instance = [] {
        auto* d = new Device;
        if (const char* const count = std::getenv("AXLE_SIMULATOR_DEVICES"))
            d->count = std::atoi(count);
        if (!axle::tests::kSanitized) {
            d->arena = static_cast<char*>(mmap(nullptr, kArena, PROT_NONE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
            d->gaps[0] = kArena;
        }
        return d;
    }();
    return *instance;
}

int& current_device() {
    thread_local int index = 0;
    return index;
}

void count_call(const char* function, std::size_t bytes) {
    const std::lock_guard lock(device().mutex);
    ++device().calls[function];
    device().bytes[function] += static_cast<std::int64_t>(bytes);
}

cudaError_t result(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

namespace {

void protect(int access) {
    Device& d = device();
    if (d.arena == nullptr) return;
    mprotect(d.arena, kArena, access);
    for (const auto& [begin, range] : d.ranges)
        if (range.mapped > 0) mprotect(begin, range.mapped, access);
}

}  // namespace

AccessScope::AccessScope() {
    if (device().depth++ == 0) protect(PROT_READ | PROT_WRITE);
}
AccessScope::~AccessScope() {
    if (--device().depth == 0) protect(PROT_NONE);
}

CUstream_st& stream_of(cudaStream_t stream) {
    return stream == nullptr ? device().legacy : *stream;
}

void drain(CUstream_st& stream, std::uint64_t position) {
    const AccessScope access;
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
    CUstream_st& stream = stream_of(handle);
    if (stream.capture) {
        stream.capture->push_back(std::move(work));
        return;
    }
    stream.queue.push_back(std::move(work));
    ++stream.queued;
}

cudaStreamCaptureMode& capture_mode() {
    thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    return mode;
}

bool any_capture() {
    if (capture_mode() == cudaStreamCaptureModeRelaxed) return false;
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

}  // namespace axle::kernels::simulator

extern "C" {

cudaError_t cudaGetLastError() {
    const cudaError_t error = axle::kernels::simulator::last_error;
    axle::kernels::simulator::last_error = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError() { return axle::kernels::simulator::last_error; }
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

}  // extern "C"
