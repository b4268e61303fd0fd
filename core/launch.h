// Runs kernels on the device of their operands.
#pragma once

#include <utility>

#include "core/tensor.h"
#include "kernels/exec.h"
#include "kernels/float_control.h"

namespace axle {

// Returns this thread's CPU context.
kernels::Cpu& cpu_context();
// Returns this thread's context for the current stream of a GPU (core/cuda.h). Throws DeviceError
// if the GPU does not exist.
kernels::Cuda& cuda_context(int device);
// Called after the kernels of an op were launched. Logs a warning if a kernel could not use a
// library. If AXLE_CUDA_SYNC=1, also waits for the kernels and throws the errors that they
// reported, except during a graph capture.
void check_after_launch(kernels::Cuda& on);

// Returns the view of a tensor. For an undefined tensor, returns an empty view, which kernels
// accept for an optional operand.
inline ConstView view_or_none(const Tensor& t) { return t.defined() ? t.view() : ConstView(); }
inline View view_or_none(Tensor& t) { return t.defined() ? t.view() : View(); }

// Calls f(context) with the device's context, or does nothing on the meta device. On the CPU,
// disables floating-point traps during the call, because the program may have enabled them.
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
        check_after_launch(on);
    }
#endif
}

// Like launch(), for ops that exist only on the CPU. Throws DeviceError on a GPU.
template <class F>
void launch_cpu(const char* op, Device device, F&& f) {
    if (device.is_cuda()) throw DeviceError(str(op, ": no kernel for ", device, "; use the CPU"));
    if (device.is_cpu()) {
        const kernels::NoTraps no_traps;
        f(cpu_context());
    }
}

}  // namespace axle
