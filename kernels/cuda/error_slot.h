// Private to kernels: the memory in which kernels report errors.
#pragma once

#include "kernels/exec.h"

namespace axle::kernels {

// The memory for one error. `record` is in host memory that is mapped for the GPU. `taken` is in
// GPU memory; it becomes 1 when a thread starts to write the record.
struct Cuda::ErrorSlot {
    unsigned* taken = nullptr;
    DeviceErrorRecord* record = nullptr;
};

}  // namespace axle::kernels
