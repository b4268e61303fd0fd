// Private to kernels: the function object with which a kernel reports invalid operands to the host.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/error_slot.h"
#include "kernels/error.h"

namespace axle::kernels {

// The kernel argument that reports an error to the host.
struct ErrorReporter {
    ErrorReporter(Cuda& on, DeviceErrorRecord::Kind kind_)
        : slot(*on.error_slot()), op(current_op), kind(kind_) {}

    // Reports an error. Only the first call since the last Cuda::take_error() is recorded.
    __device__ void operator()(std::int64_t position, std::int64_t value, std::int64_t size) const {
        if (atomicExch(slot.taken, 1u) != 0) return;
        volatile DeviceErrorRecord* record = slot.record;
        record->op = op;
        record->position = position;
        record->value = value;
        record->size = size;
        __threadfence_system();
        record->kind = kind;
    }

    Cuda::ErrorSlot slot;
    const char* op;
    DeviceErrorRecord::Kind kind;
};

}  // namespace axle::kernels
