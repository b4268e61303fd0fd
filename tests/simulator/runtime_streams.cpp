// The streams, events, captures and graphs of the simulated CUDA runtime.
#include <utility>

#include "tests/simulator/runtime_state.h"

using namespace axle::kernels::simulator;  // NOLINT(google-build-using-namespace)

extern "C" {

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void* argument) {
    AXLE_LOCKED;
    queue(stream, [=] { f(argument); });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int, int) {
    AXLE_LOCKED;
    *stream = new CUstream_st;
    (*stream)->device = current_device();
    device().streams.push_back(*stream);
    return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* index) {
    AXLE_LOCKED;
    *index = stream == nullptr ? current_device() : stream->device;
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
    if (const Captured& c = stream_of(stream).capture)
        return break_capture(c, cudaErrorStreamCaptureUnsupported);
    drain(stream_of(stream), stream_of(stream).queued);
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    AXLE_LOCKED;
    CUstream_st& s = stream_of(stream);
    if (s.capture) return break_capture(s.capture, cudaErrorStreamCaptureUnsupported);
    if (s.done == s.queued) return cudaSuccess;
    drain(s, s.done + 1);
    return cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize() {
    AXLE_LOCKED;
    // The call is forbidden in every capture mode and on every thread.
    for (const CUstream_st* stream : device().streams)
        if (stream->capture)
            return break_capture(stream->capture, cudaErrorStreamCaptureUnsupported);
    drain_all();
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
    *event = new CUevent_st;
    (*event)->device = current_device();
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
    CUstream_st& s = stream_of(stream);
    if (event->device != (stream == nullptr ? current_device() : s.device))
        return result(cudaErrorInvalidResourceHandle);
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
    CUstream_st& s = stream_of(stream);
    if (event->capture) {
        s.capture = event->capture;  // joins the capture, which already orders the stream's work
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
    *status =
        stream_of(stream).capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(*mode, capture_mode());
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
