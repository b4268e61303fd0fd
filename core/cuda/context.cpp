#include "core/cuda/context.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda.h"
#include "core/cuda/memory.h"
#include "core/launch.h"
#include "core/shape.h"
#include "core/system/log.h"
#include "core/system/numerics.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/library.h"
#include "kernels/ops/random.h"

namespace axle::cuda {

using kernels::check_cuda;

namespace {

// Unused streams by device and priority, kept for reuse. Streams are never destroyed, because
// memory blocks and contexts refer to their handles. IdleStreams itself is never destroyed, because
// tensors can outlive static objects.
struct IdleStreams {
    std::mutex mutex;
    std::map<std::pair<int, int>, std::vector<cudaStream_t>> streams;
};
IdleStreams& idle_streams() {
    static auto* const instance = new IdleStreams;
    return *instance;
}

}  // namespace

struct Stream::State {
    int device, priority;
    cudaStream_t handle = nullptr;

    State(int device_, int priority_) : device(device_), priority(priority_) {
        set_device(device);
        const std::lock_guard lock(idle_streams().mutex);
        std::vector<cudaStream_t>& streams = idle_streams().streams[{device, priority}];
        if (streams.empty()) {
            check_cuda(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, priority),
                       "cudaStreamCreateWithPriority");
        } else {
            handle = streams.back();
            streams.pop_back();
        }
    }
    ~State() {
        try {
            const std::lock_guard lock(idle_streams().mutex);
            idle_streams().streams[{device, priority}].push_back(handle);
        } catch (...) {  // the stream is not reused
        }
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
};

namespace {

struct Devices {
    int devices = 0;
    std::string why;
};

constinit std::atomic<bool> started = false;

const Devices& found() {
    static const Devices result = [] {
        started = true;
        Devices f;
        const cudaError_t error = cudaGetDeviceCount(&f.devices);
        if (error == cudaSuccess && f.devices > 0) return f;
        f.devices = 0;
        cudaGetLastError();
        if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ||
            error == cudaSuccess)
            f.why = error == cudaErrorInsufficientDriver
                        ? "no NVIDIA driver was found, or the driver is too old for this build's "
                          "CUDA version"
                        : "the NVIDIA driver found no GPU";
        else
            f.why = str(cudaGetErrorName(error), ": ", cudaGetErrorString(error));
        return f;
    }();
    return result;
}

void check_device_exists(int device) {
    if (device >= 0 && device < found().devices) return;
    if (found().devices == 0) throw DeviceError(str("cuda:", device, ": ", found().why));
    throw DeviceError(str("cuda:", device, ": the device does not exist: this process can use ",
                          found().devices, found().devices == 1 ? " GPU" : " GPUs"));
}

// The default streams of the devices. They are never destroyed, because tensors can outlive static
// objects.
struct DefaultStreams {
    std::mutex mutex;
    std::map<int, Stream> streams;
};
DefaultStreams& default_streams() {
    static auto* const instance = new DefaultStreams;
    return *instance;
}

void* take_scratch(kernels::Cuda& on, std::size_t size) {
    return device_memory::allocate(on.device(), size, on.stream());
}
void give_back_scratch(kernels::Cuda& on, void* block, std::size_t) noexcept {
    device_memory::deallocate(on.device(), block);
}

constinit thread_local int current_device = -1;  // current device of the CUDA runtime

// The streams and contexts of one thread.
struct ThreadState {
    std::vector<Stream> current;  // at most one per device
    std::map<cudaStream_t, std::unique_ptr<kernels::Cuda>> contexts;
    // The contexts of the current streams, by device; null before their first use.
    std::vector<kernels::Cuda*> current_contexts;
};
ThreadState& thread_state() {
    thread_local ThreadState instance;
    return instance;
}

bool is_synchronous() {
    static const bool on = [] {
        const char* const text = std::getenv("AXLE_CUDA_SYNC");
        return text != nullptr && std::string(text) == "1";
    }();
    return on;
}

[[noreturn]] void throw_device_error(const kernels::DeviceErrorRecord& t) {
    using kernels::BadWeights;
    using kernels::DeviceErrorRecord;
    if (t.kind == DeviceErrorRecord::bad_target)
        throw IndexError(str(t.op, ": target out of range: ", t.value, " in row ", t.position,
                             ", with ", t.size, " classes"));
    if (t.kind == DeviceErrorRecord::bad_weights)
        throw ValueError(str(t.op, ": ", kernels::reason(static_cast<BadWeights::Why>(t.value)),
                             ": row ", t.position));
    throw IndexError(str(t.op, ": index out of range: ", t.value, " at element ", t.position,
                         " for a dimension of size ", t.size));
}

// Throws the errors that kernels have reported on the streams of the device that this thread has
// used. A graph reports its errors to the stream on which it was captured.
void throw_reported(int device) {
    for (auto& [stream, on] : thread_state().contexts) {
        if (on->device() != device) continue;
        const kernels::DeviceErrorRecord error = on->take_error();
        if (error.kind != kernels::DeviceErrorRecord::none) throw_device_error(error);
    }
}

}  // namespace

bool driver_was_used() { return started; }
bool is_available() noexcept { return found().devices > 0; }
int device_count() noexcept { return found().devices; }
std::string why_unavailable() { return found().why; }

std::vector<std::pair<std::string, std::string>> find_libraries() {
    std::vector<std::pair<std::string, std::string>> all;
    const auto look_for = [&](const char* title, const char* stem, int major) {
        const kernels::Library library(title, stem, major);
        all.emplace_back(title, library.found() ? library.path() : "not found: " + library.error());
    };
    look_for("cuBLASLt", "libcublasLt", CUDART_VERSION / 1000);
    look_for("cuDNN", "libcudnn", 9);
    look_for("NCCL", "libnccl", 2);
    return all;
}

DeviceProperties get_device_properties(int device) {
    check_device_exists(device);
    // The properties are cached, because cudaGetDeviceProperties takes about a millisecond and some
    // ops read the compute capability.
    static std::mutex mutex;
    static auto& known = *new std::map<int, DeviceProperties>;
    const std::lock_guard lock(mutex);
    if (const auto entry = known.find(device); entry != known.end()) return entry->second;
    cudaDeviceProp p;
    check_cuda(cudaGetDeviceProperties(&p, device), "cudaGetDeviceProperties");
    return known[device] = {p.name,
                            p.major,
                            p.minor,
                            p.multiProcessorCount,
                            static_cast<std::int64_t>(p.totalGlobalMem),
                            p.l2CacheSize};
}

void set_device(int device) {
    if (current_device == device) return;
    check_device_exists(device);
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    current_device = device;
}

kernels::Cuda& context(int device) {
    ThreadState& l = thread_state();
    set_device(device);
    const auto index = static_cast<std::size_t>(device);
    if (l.current_contexts.size() <= index) l.current_contexts.resize(index + 1);
    kernels::Cuda*& on = l.current_contexts[index];
    if (on == nullptr) {
        const Stream stream = current_stream(device);
        auto& made = l.contexts[stream.handle()];
        if (!made)
            made = std::make_unique<kernels::Cuda>(
                device, stream.handle(), kernels::Cuda::Memory{take_scratch, give_back_scratch});
        on = made.get();
    }
    on->deterministic = are_deterministic_algorithms_enabled();
    on->allow_tf32 = get_float32_matmul_precision() == MatmulPrecision::high;
    return *on;
}

bool is_capturing(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
}

void check_not_capturing(const char* op, cudaStream_t stream) {
    if (is_capturing(stream))
        throw UsageError(str(op,
                             ": waits for the GPU, which is not allowed during a graph "
                             "capture; wait, or read the value, after the step"));
}

void wait_for(kernels::Cuda& on) {
    check_not_capturing(kernels::current_op, on.stream());
    check_cuda(cudaStreamSynchronize(on.stream()), "cudaStreamSynchronize");
    throw_reported(on.device());
}

void synchronize(int device) {
    set_device(device);
    check_not_capturing("synchronize", context(device).stream());
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    throw_reported(device);
}

// --- streams

Stream::Stream(int device, int priority) : state_(std::make_shared<State>(device, priority)) {}
int Stream::device() const { return state_->device; }
cudaStream_t Stream::handle() const { return state_->handle; }

void Stream::synchronize() const {
    check_not_capturing("synchronize", handle());
    check_cuda(cudaStreamSynchronize(handle()), "cudaStreamSynchronize");
    throw_reported(device());
}

bool Stream::query() const {
    const cudaError_t error = cudaStreamQuery(handle());
    if (error == cudaErrorNotReady) {
        cudaGetLastError();
        return false;
    }
    check_cuda(error, "cudaStreamQuery");
    return true;
}

void Stream::wait_stream(const Stream& other) const {
    if (*this == other) return;
    const Event event;
    event.record(other);
    event.wait(*this);
}

Stream default_stream(int device) {
    DefaultStreams& s = default_streams();
    const std::lock_guard lock(s.mutex);
    const auto found = s.streams.find(device);
    if (found != s.streams.end()) return found->second;
    return s.streams.emplace(device, Stream(device)).first->second;
}

Stream current_stream(int device) {
    std::vector<Stream>& current = thread_state().current;
    for (const Stream& stream : current)
        if (stream.device() == device) return stream;
    current.push_back(default_stream(device));
    return current.back();
}

StreamGuard::StreamGuard(const Stream& stream) : before_(current_stream(stream.device())) {
    ThreadState& l = thread_state();
    for (Stream& current : l.current)
        if (current.device() == stream.device()) current = stream;
    if (static_cast<std::size_t>(stream.device()) < l.current_contexts.size())
        l.current_contexts[static_cast<std::size_t>(stream.device())] = nullptr;
}

StreamGuard::~StreamGuard() {
    ThreadState& l = thread_state();
    for (Stream& current : l.current)
        if (current.device() == before_.device()) current = before_;
    if (static_cast<std::size_t>(before_.device()) < l.current_contexts.size())
        l.current_contexts[static_cast<std::size_t>(before_.device())] = nullptr;
}

// --- events

// The CUDA event is created when it is first recorded, because only then is its device known.
struct Event::State {
    bool timing;
    cudaEvent_t handle = nullptr;

    ~State() {
        if (handle != nullptr) cudaEventDestroy(handle);
    }
};

Event::Event(bool timing) : state_(std::make_shared<State>(State{timing})) {}

void Event::record(const Stream& stream) const {
    set_device(stream.device());
    if (state_->handle == nullptr)
        check_cuda(cudaEventCreateWithFlags(
                       &state_->handle, state_->timing ? cudaEventDefault : cudaEventDisableTiming),
                   "cudaEventCreateWithFlags");
    check_cuda(cudaEventRecord(state_->handle, stream.handle()), "cudaEventRecord");
}
void Event::wait(const Stream& stream) const {
    if (state_->handle == nullptr) return;
    set_device(stream.device());
    check_cuda(cudaStreamWaitEvent(stream.handle(), state_->handle, 0), "cudaStreamWaitEvent");
}
void Event::synchronize() const {
    if (state_->handle == nullptr) return;
    check_cuda(cudaEventSynchronize(state_->handle), "cudaEventSynchronize");
}
bool Event::query() const {
    if (state_->handle == nullptr) return true;
    const cudaError_t error = cudaEventQuery(state_->handle);
    if (error == cudaErrorNotReady) {
        cudaGetLastError();
        return false;
    }
    check_cuda(error, "cudaEventQuery");
    return true;
}
double Event::elapsed_time(const Event& end) const {
    if (state_->handle == nullptr || end.state_->handle == nullptr)
        throw UsageError(str("Event::elapsed_time: the ",
                             state_->handle == nullptr ? "start" : "end",
                             " event was not recorded; call record() first"));
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, state_->handle, end.state_->handle),
               "cudaEventElapsedTime");
    return ms;
}

// --- memory

MemoryStats memory_stats(int device) { return device_memory::stats(device); }
void reset_peak_memory_stats(int device) { device_memory::reset_peak(device); }
void empty_cache(int device) { device_memory::empty_cache(device); }
void set_memory_limit(std::int64_t bytes, int device) { device_memory::set_limit(device, bytes); }

}  // namespace axle::cuda

namespace axle {

// --- launches of ops

kernels::Cuda& cuda_context(int device) { return cuda::context(device); }

void check_after_launch(kernels::Cuda& on) {
    if (kernels::has_library_warning)
        log(LogLevel::warning,
            "cuda: slower, because a library cannot be used: ", kernels::take_library_warning());
    if (cuda::is_synchronous() && !cuda::is_capturing(on.stream())) cuda::wait_for(on);
}

}  // namespace axle
