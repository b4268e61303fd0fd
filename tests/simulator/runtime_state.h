// The state of the simulated CUDA runtime: its device, streams, events and graphs. Private to
// tests/simulator.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace axle::kernels::simulator {

using Work = std::function<void()>;
using Captured = std::shared_ptr<std::vector<Work>>;

}  // namespace axle::kernels::simulator

struct CUstream_st {
    int device = 0;
    std::deque<axle::kernels::simulator::Work> queue;
    std::uint64_t queued = 0, done = 0;
    // The graph to which work is added while the stream is captured.
    axle::kernels::simulator::Captured capture;
    bool origin = false;  // the capture began on this stream
    // The mode of the capture. It is set only for the stream on which the capture began.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id captor;
    bool broken = false;  // whether a forbidden call has broken the capture
};

struct CUevent_st {
    int device = 0;
    CUstream_st* stream = nullptr;  // null if the event was never recorded
    std::uint64_t position = 0;
    axle::kernels::simulator::Captured capture;
    std::chrono::steady_clock::time_point passed = {};
};

struct CUgraph_st {
    axle::kernels::simulator::Captured work;
};
struct CUgraphExec_st {
    axle::kernels::simulator::Captured work;
};

namespace axle::kernels::simulator {

inline constexpr std::size_t kArena = std::size_t{2} << 30;  // bytes of address space

// An address range whose first `mapped` bytes have memory.
struct Range {
    std::size_t size = 0, mapped = 0;
};

struct Device {
    std::recursive_mutex mutex;
    std::vector<CUstream_st*> streams;
    CUstream_st legacy;
    std::size_t memory = kArena, used = 0;
    std::map<void*, std::size_t> blocks;
    // Device memory: one address range that is inaccessible while no work runs. Null with the
    // address or the thread sanitizer. The address sanitizer detects accesses outside of blocks
    // itself.
    char* arena = nullptr;
    std::map<std::size_t, std::size_t> gaps;  // size of each gap, by offset
    std::map<char*, Range> ranges;
    std::map<CUmemGenericAllocationHandle, std::size_t> pieces;
    CUmemGenericAllocationHandle last_piece = 0;
    int depth = 0;  // number of active AccessScopes
    std::set<std::string> started;
    std::map<std::string, std::int64_t> calls, bytes;  // by function
    int count = 1;                                     // number of devices
};

Device& device();
// Returns this thread's current device.
int& current_device();
// Counts a call for calls_of(), and its bytes for bytes_of().
void count_call(const char* function, std::size_t bytes = 0);

// A scope in which device memory is accessible.
class AccessScope {
  public:
    AccessScope();
    ~AccessScope();
    AccessScope(const AccessScope&) = delete;
    AccessScope& operator=(const AccessScope&) = delete;
};

// Records the error for cudaGetLastError() and returns it.
cudaError_t result(cudaError_t error);

CUstream_st& stream_of(cudaStream_t stream);
// Adds work to the stream, or to its capture.
void queue(cudaStream_t handle, Work work);
// Runs the work of a stream up to a position.
void drain(CUstream_st& stream, std::uint64_t position);
void drain_all();

// Returns the capture mode of this thread (see cudaThreadExchangeStreamCaptureMode).
cudaStreamCaptureMode& capture_mode();
// Returns whether an active capture forbids calls of this thread that do not queue work. Breaks
// each such capture.
bool any_capture();
cudaError_t break_capture(const Captured& capture, cudaError_t error);

// Returns the driver's function with this name if it reserves, creates, maps or frees memory that
// is mapped in pieces, else null.
void* memory_function(const char* name);

}  // namespace axle::kernels::simulator

#define AXLE_LOCKED const std::lock_guard axle_lock(::axle::kernels::simulator::device().mutex)
