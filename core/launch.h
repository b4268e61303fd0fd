// From a tensor's device to a kernel's overload.
#pragma once

#include <utility>

#include "core/tensor.h"
#include "kernels/exec.h"
#include "kernels/float_control.h"

namespace axle::inline v0 {

// This thread's CPU context.
kernels::Cpu& cpu_context();

// f(context) for the context of the device; on meta nothing happens. Never traps, whatever
// floating-point exceptions the program has unmasked.
template <class F>
void launch(Device device, F&& f) {
    if (!device.is_cpu()) return;
    const kernels::NoTraps no_traps;
    f(cpu_context());
}

// For an op that only the CPU has: DeviceError on a GPU.
template <class F>
void launch_cpu(const char* op, Device device, F&& f) {
    if (device.is_cuda()) throw DeviceError(str(op, ": no kernel for ", device, ", use the CPU"));
    launch(device, f);
}

}  // namespace axle::inline v0
