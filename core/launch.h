// From a tensor's device to a kernel's overload.
#pragma once

#include <utility>

#include "core/tensor.h"
#include "kernels/exec.h"
#include "kernels/float_control.h"

namespace axle::inline v0 {

// This thread's CPU context.
kernels::Cpu& cpu_context();
// This thread's context of the GPU's current stream (core/cuda.h). DeviceError where there is no
// such GPU.
kernels::Cuda& cuda_context(int device);
// Behind the kernels of an op on a GPU: with AXLE_CUDA_SYNC=1 waits for them and throws what they
// found.
void launched(kernels::Cuda& on);

// f(context) for the context of the device; on meta nothing happens. Never traps, whatever
// floating-point exceptions the program has unmasked.
template <class F>
void launch(Device device, F&& f) {
    if (device.is_cpu()) {
        const kernels::NoTraps no_traps;
        f(cpu_context());
    }
#if AXLE_CUDA
    if (device.is_cuda()) {
        kernels::Cuda& on = cuda_context(device.index);
        f(on);
        launched(on);
    }
#endif
}

// For an op that only the CPU has: DeviceError on a GPU.
template <class F>
void launch_cpu(const char* op, Device device, F&& f) {
    if (device.is_cuda()) throw DeviceError(str(op, ": no kernel for ", device, ", use the CPU"));
    if (device.is_cpu()) {
        const kernels::NoTraps no_traps;
        f(cpu_context());
    }
}

}  // namespace axle::inline v0
