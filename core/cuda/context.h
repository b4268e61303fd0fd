// Private to core: a thread's execution context on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/exec.h"

namespace axle::cuda {

// Returns this thread's context for the device's current stream, and makes the device the thread's
// current device. Throws DeviceError if there is no such device.
kernels::Cuda& context(int device);

// Throws UsageError if the stream is being captured; called before `op` reads device memory.
void check_not_capturing(const char* op, cudaStream_t stream);
bool is_capturing(cudaStream_t stream);

// Waits for the context's stream, then throws errors that its kernels reported.
void wait_for(kernels::Cuda& on);

// Returns whether this process has used the CUDA driver. After that a forked child cannot use it.
bool driver_was_used();

// Makes the device this thread's current device. Throws DeviceError if there is no such device.
void set_device(int device);

}  // namespace axle::cuda
