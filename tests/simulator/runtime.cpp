// The device functions and kernel launches of the simulated CUDA runtime (see simulator.h).
#include <cstdlib>
#include <cstring>
#include <string>

#include <cuda_runtime_api.h>

#include "tests/simulator/run_block.h"
#include "tests/simulator/runtime_state.h"
#include "tests/simulator/simulator.h"

namespace axle::kernels::simulator {

namespace {

// AXLE_LIBRARY_PATH is set before main, because the first use of a library reads it.
[[maybe_unused]] const int libraries = setenv("AXLE_LIBRARY_PATH", AXLE_SIMULATED_LIBRARIES, 0);

thread_local int bus = 0;

}  // namespace

void start(cudaStream_t stream, Extent grid, int threads, std::size_t shared_bytes,
           std::source_location at, std::function<void()> run) {
    const std::lock_guard lock(device().mutex);
    const std::string file = at.file_name();
    device().started.insert(file.substr(file.rfind('/') + 1) + ":" + std::to_string(at.line()));
    queue(stream, [=, run = std::move(run)] { run_grid(grid, threads, shared_bytes, run); });
}

std::set<std::string> started() {
    const std::lock_guard lock(device().mutex);
    return device().started;
}

[[gnu::weak]] bool plugged_in() { return false; }

void set_bus(int to) { bus = to; }

namespace {

std::int64_t counted(const std::map<std::string, std::int64_t>& counts,
                     const std::string& function) {
    const std::lock_guard lock(device().mutex);
    const auto found = counts.find(function);
    return found == counts.end() ? 0 : found->second;
}

}  // namespace

std::int64_t calls_of(const std::string& function) { return counted(device().calls, function); }

std::int64_t bytes_of(const std::string& function) { return counted(device().bytes, function); }

void set_device_count(int count) {
    const std::lock_guard lock(device().mutex);
    device().count = count;
}

void set_memory(std::size_t bytes) {
    const std::lock_guard lock(device().mutex);
    device().memory = bytes;
}

}  // namespace axle::kernels::simulator

using namespace axle::kernels::simulator;  // NOLINT(google-build-using-namespace)

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
    *count = plugged_in() ? device().count : 0;
    return result(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaSetDevice(int index) {
    if (index < 0 || index >= device().count) return result(cudaErrorInvalidDevice);
    current_device() = index;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* index) {
    *index = current_device();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrMultiProcessorCount:
            *value = 2;
            return cudaSuccess;
        case cudaDevAttrComputeCapabilityMajor:
            *value = 9;
            return cudaSuccess;
        default:
            *value = 0;
            return cudaSuccess;
    }
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    count_call("cudaGetDeviceProperties");
    *properties = {};
    std::strcpy(properties->name, "simulated GPU");
    properties->major = 9;
    properties->pciBusID = bus;
    properties->multiProcessorCount = 2;
    properties->totalGlobalMem = device().memory;
    properties->l2CacheSize = 1 << 20;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
    *function = memory_function(name);
    if (found != nullptr)
        *found =
            *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

}  // extern "C"
