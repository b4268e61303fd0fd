// Private to core: a thread's execution context on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/exec.h"

namespace axle::cuda {

// Returns this thread's context for the current stream of the device, and makes the device the
// current device of this thread. Throws DeviceError if the device does not exist.
kernels::Cuda& context(int device);

// Throws UsageError if the stream is being captured. `op` is an operation that waits for the
// stream.
void check_not_capturing(const char* op, cudaStream_t stream);
bool is_capturing(cudaStream_t stream);

// Waits for the context's stream, then throws the errors that kernels reported on the streams of
// the context's device that this thread has used. Throws UsageError if the stream is being
// captured.
void wait_for(kernels::Cuda& on);

// Returns whether this process has used the CUDA driver. If so, a forked child cannot use it.
bool driver_was_used();

// Makes the device this thread's current device. Throws DeviceError if the device does not exist.
void set_device(int device);

}  // namespace axle::cuda
