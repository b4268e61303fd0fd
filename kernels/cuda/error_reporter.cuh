// Private to kernels: how a kernel tells that its data are wrong.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/error_slot.h"

namespace axle::inline v0::kernels {

// What a kernel is given to report to.
struct Report {
    Report(Cuda& on, DeviceErrorRecord::Kind kind_)
        : box(*on.error_slot()), op(current_op), kind(kind_) {}

    // Keeps the first of all calls.
    __device__ void operator()(std::int64_t position, std::int64_t value, std::int64_t size) const {
        if (atomicExch(box.taken, 1u) != 0) return;
        volatile DeviceErrorRecord* record = box.record;
        record->op = op;
        record->position = position;
        record->value = value;
        record->size = size;
        __threadfence_system();
        record->kind = kind;
    }

    Cuda::ErrorSlot box;
    const char* op;
    DeviceErrorRecord::Kind kind;
};

}  // namespace axle::inline v0::kernels
