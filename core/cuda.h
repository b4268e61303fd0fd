// NVIDIA GPUs: what there is, streams and events, and the memory of a device.
//
// Every device has one stream that all threads use unless they say otherwise (StreamGuard): work
// queued on it runs in order, while the program goes on. Reading a value (item(), to(cpu)) or
// synchronize() waits; errors that a kernel finds in its data, such as an index out of range, are
// thrown there, or at once with AXLE_CUDA_SYNC=1 in the environment.
//
// In a build without CUDA the functions that ask are there, synchronize() and empty_cache() do
// nothing, statistics are zero; Stream, Event and what takes them are not.
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

namespace axle::inline v0::cuda {

// Whether this build has CUDA, and this machine a driver and a GPU. Never throws.
bool is_available() noexcept;
int device_count() noexcept;
// Why is_available() is false; empty where it is true.
std::string why_unavailable();

struct DeviceProperties {
    std::string name;
    int major = 0, minor = 0;  // compute capability
    int multi_processor_count = 0;
    std::int64_t total_memory = 0, l2_cache_size = 0;  // bytes
};
// DeviceError for a device that there is not.
DeviceProperties get_device_properties(int device = 0);

// NVIDIA's libraries that are opened when they are first needed, by name: the file, or "not found:
// " and where it was looked for. Empty in builds without CUDA.
std::vector<std::pair<std::string, std::string>> find_libraries();

// Waits for all streams of the device and throws what kernels have reported. Nothing without CUDA.
void synchronize(int device = 0);

// A queue of work of its own, in no order with other streams but through events. A handle: copies
// are the same stream.
class Stream {
  public:
    // A new stream; a lower priority number is served first, 0 is normal.
    explicit Stream(int device = 0, int priority = 0);

    int device() const;
    CUstream_st* handle() const;
    // Waits until all is done.
    void synchronize() const;
    // Whether all is done.
    bool query() const;
    // What is queued here later waits for what `other` holds now.
    void wait_stream(const Stream& other) const;
    friend bool operator==(const Stream&, const Stream&) = default;

  private:
    struct Owned;
    friend Stream current_stream(int device);
    friend Stream default_stream(int device);
    explicit Stream(std::shared_ptr<Owned> owned) : owned_(std::move(owned)) {}
    std::shared_ptr<Owned> owned_;
};

Stream current_stream(int device = 0);
Stream default_stream(int device = 0);

// Makes a stream current on its device for this thread, for a scope.
class StreamGuard {
  public:
    explicit StreamGuard(const Stream& stream);
    ~StreamGuard();
    StreamGuard(const StreamGuard&) = delete;
    StreamGuard& operator=(const StreamGuard&) = delete;

  private:
    Stream before_;
};

// A place in a stream. A handle, like Stream.
class Event {
  public:
    // Without timing an event costs less. It is passed until it is recorded.
    explicit Event(bool timing = false);

    void record(const Stream& stream) const;
    // What is queued on the stream later waits for the place.
    void wait(const Stream& stream) const;
    void synchronize() const;
    bool query() const;
    // Milliseconds from this place to a later one; both recorded with timing, and passed.
    double elapsed_time(const Event& end) const;

  private:
    struct Made;
    std::shared_ptr<Made> made_;
};

// --- memory: as host_memory (core/memory/memory.h), of one device

MemoryStats memory_stats(int device = 0);
void reset_peak_memory_stats(int device = 0);
// Gives cached blocks that no stream needs any more back to the driver.
void empty_cache(int device = 0);
// OutOfMemory rather than more than so many bytes reserved; 0 is no limit.
void set_memory_limit(std::int64_t bytes, int device = 0);

}  // namespace axle::inline v0::cuda
