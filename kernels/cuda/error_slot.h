// Private to kernels: the memory in which kernels report errors.
#pragma once

#include "kernels/exec.h"

namespace axle::kernels {

// `record` is in host memory that is mapped for the GPU. `taken` is in GPU memory; it is 1 once a
// thread has decided to write the record.
struct Cuda::ErrorSlot {
    unsigned* taken = nullptr;
    DeviceErrorRecord* record = nullptr;
};

}  // namespace axle::kernels
