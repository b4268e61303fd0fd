// NVIDIA GPUs: devices, streams, events and device memory.
//
// Each device has a default stream that all threads use unless a StreamGuard selects another
// stream. Work queued on a stream runs in order and asynchronously. Functions that read a value
// (item(), to(cpu)) wait for the stream, and synchronize() waits for all streams. After waiting,
// these functions throw the errors that kernels found in the data, such as an index out of range.
// If the environment contains AXLE_CUDA_SYNC=1, every op waits for its kernels, except during a
// graph capture, and throws these errors itself.
//
// Functions throw CudaError if a call of the CUDA runtime fails, and DeviceError if they need a
// device that does not exist.
//
// In builds without CUDA, the query functions work, synchronize(), empty_cache() and
// reset_peak_memory_stats() do nothing, and statistics are zero. Stream, Event, the functions that
// use them, and set_memory_limit() are not defined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/memory/memory.h"

struct CUstream_st;

namespace axle::cuda {

// Returns whether this build has CUDA and this machine has a driver and a GPU.
bool is_available() noexcept;
// Returns the number of GPUs, or 0 if is_available() is false.
int device_count() noexcept;
// Returns the reason why is_available() is false, or "" if it is true.
std::string why_unavailable();

struct DeviceProperties {
    std::string name;
    int major = 0, minor = 0;  // compute capability
    int multi_processor_count = 0;
    std::int64_t total_memory = 0, l2_cache_size = 0;  // in bytes
};
// Returns the properties of a GPU. Throws DeviceError if the device does not exist.
DeviceProperties get_device_properties(int device = 0);

// Returns (name, path) for each NVIDIA library that Axle opens on first use. If a library is
// missing, the path is "not found: " followed by the reason, such as the locations that were
// searched. The result is empty in builds without CUDA.
std::vector<std::pair<std::string, std::string>> find_libraries();

// Waits for all streams of the device and throws the errors that kernels reported on the streams
// that this thread has used. Throws UsageError during a graph capture. Does nothing in builds
// without CUDA.
void synchronize(int device = 0);

// A CUDA stream: a queue of work. Only events order the work of different streams. Copies of this
// handle refer to the same stream.
class Stream {
  public:
    // Creates a stream. A lower number means a higher priority; 0 is the default.
    explicit Stream(int device = 0, int priority = 0);

    int device() const;           // the index of the stream's GPU
    CUstream_st* handle() const;  // valid while a copy of this object exists
    // Waits until all work queued on this stream is done, then throws reported errors as
    // cuda::synchronize() does. Throws UsageError if the stream is being captured.
    void synchronize() const;
    // Returns whether all work queued on this stream is done.
    bool query() const;
    // Makes work that is later queued on this stream wait for the work that is already queued on
    // `other`.
    void wait_stream(const Stream& other) const;
    friend bool operator==(const Stream&, const Stream&) = default;

  private:
    struct State;
    friend Stream current_stream(int device);
    friend Stream default_stream(int device);
    explicit Stream(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
};

// Return the stream that this thread uses on the device: the stream of the innermost StreamGuard,
// or the default stream, which all threads share.
Stream current_stream(int device = 0);
Stream default_stream(int device = 0);

// Makes a stream the current stream of its device on this thread while the guard exists.
class StreamGuard {
  public:
    explicit StreamGuard(const Stream& stream);
    ~StreamGuard();
    StreamGuard(const StreamGuard&) = delete;
    StreamGuard& operator=(const StreamGuard&) = delete;

  private:
    Stream before_;
};

// A CUDA event, which marks a position in a stream. Copies of this handle refer to the same event.
class Event {
  public:
    // Creates an event. Events without timing cost less. An event that was never recorded counts as
    // done.
    explicit Event(bool timing = false);

    // Sets the position of the event to the end of the work that is queued on the stream.
    void record(const Stream& stream) const;
    // Makes work that is later queued on the stream wait for this event.
    void wait(const Stream& stream) const;
    // Waits until the work before the event is done.
    void synchronize() const;
    // Returns whether the work before the event is done.
    bool query() const;
    // Returns the time from this event to `end` in milliseconds. Both events must have been created
    // with timing and must be done. Throws UsageError if an event was not recorded.
    double elapsed_time(const Event& end) const;

  private:
    struct State;
    std::shared_ptr<State> state_;
};

// --- device memory; host_memory (core/memory/memory.h) has the corresponding functions

MemoryStats memory_stats(int device = 0);
// Restarts the counts, and sets the peak to the bytes in use.
void reset_peak_memory_stats(int device = 0);
// Releases unused cached memory to the driver, after waiting for the streams that still use freed
// blocks. Does nothing during a graph capture.
void empty_cache(int device = 0);
// Limits the reserved bytes; 0 means no limit. Allocations above the limit throw OutOfMemory.
// Throws ValueError if the limit is negative.
void set_memory_limit(std::int64_t bytes, int device = 0);

}  // namespace axle::cuda
