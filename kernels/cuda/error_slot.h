// Private to kernels: where kernels report trouble with their data.
#pragma once

#include "kernels/exec.h"

namespace axle::inline v0::kernels {

// `record` lies in host memory that the GPU writes to; `taken`, in the GPU's own memory, is 1 once
// a thread has decided to fill it.
struct Cuda::ErrorSlot {
    unsigned* taken = nullptr;
    DeviceErrorRecord* record = nullptr;
};

}  // namespace axle::inline v0::kernels
