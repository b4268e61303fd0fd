// A simulated GPU: the part of the CUDA runtime that Axle calls, implemented on the host. A program
// that links the simulator in place of the runtime, and plugged_in.cpp, has one device. The
// environment variable AXLE_SIMULATOR_DEVICES can set another number. The simulator runs the
// kernels in kernels/cuda/, compiled by the host compiler (device.h).
//
// The work of a stream runs only when a thread waits for it; a query runs a part of it. Work that
// is not ordered by a stream or an event therefore runs out of order. The host can access device
// memory only while work runs. With the address or the thread sanitizer, the host can always access
// it, and the address sanitizer detects accesses outside of blocks. New device memory is filled
// with NaN. Graphs are lists of captured work. A call that CUDA forbids during a capture
// invalidates the capture.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace axle::kernels::simulator {

// Returns whether the process has a device. This is true in programs that also link plugged_in.cpp.
bool plugged_in();

// Returns the source lines in kernels/cuda/ ("softmax.cu:42") whose kernels have been launched.
std::set<std::string> started();

// Sets the PCI bus id of the device for this thread. Threads with different ids simulate processes
// with a GPU each.
void set_bus(int bus);

// Returns the number of calls of a function of the runtime, the driver, or the stand-in for
// cuBLASLt or NCCL. Only some functions count their calls: cudaGetDeviceProperties, cuMemCreate,
// cuMemMap, ncclAllGather, ncclAllReduce and ncclReduceScatter. Calls of cublasLtMatmul are counted
// by compute type ("cublasLtMatmul CUBLAS_COMPUTE_32F").
std::int64_t calls_of(const std::string& function);
// Returns the total size in bytes of the buffers of all calls of a function: the results of
// ncclAllGather, or the operands of ncclReduceScatter. Returns 0 for other functions.
std::int64_t bytes_of(const std::string& function);

// Sets the number of devices of the simulated runtime, to test streams and events of several
// devices. All devices have the same memory. Axle reads the number of devices only once, at its
// first use.
void set_device_count(int count);

// Sets the size of device memory; larger allocations fail as on a real device.
void set_memory(std::size_t bytes);

}  // namespace axle::kernels::simulator
