// Private to the library: converts errors of the CUDA runtime to exceptions.
#pragma once

#include <source_location>

#include <cuda_runtime_api.h>

#include "kernels/error.h"

namespace axle::kernels {

// Throws CudaError with the message "op: what failed: name: text, at file:line". Axle's caching
// allocator handles its own out-of-memory errors, so they do not reach this function.
[[noreturn]] void throw_cuda_error(cudaError_t error, const char* what, std::source_location at);

inline void check_cuda(cudaError_t error, const char* what,
                       std::source_location at = std::source_location::current()) {
    if (error != cudaSuccess) [[unlikely]]
        throw_cuda_error(error, what, at);
}

}  // namespace axle::kernels
