// Private to core: a thread's way to a device.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/exec.h"

namespace axle::inline v0::cuda {

// This thread's context of the device's current stream; the device becomes the thread's current
// one. DeviceError where there is no such device.
kernels::Cuda& context(int device);

// Throws if the stream is being captured, for `op` reads device memory.
void refuse_capture(const char* op, cudaStream_t stream);
bool is_capturing(cudaStream_t stream);

// Waits for the context's stream, then throws what its kernels have reported.
void wait_for(kernels::Cuda& on);

// Whether this process has asked the driver for anything: from then on a fork of it can't.
bool has_started();

// Makes the device this thread's current one. DeviceError where there is no such device.
void set_device(int device);

}  // namespace axle::inline v0::cuda
