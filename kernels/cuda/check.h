// Private to the library: results of the CUDA runtime become exceptions.
#pragma once

#include <source_location>

#include <cuda_runtime_api.h>

#include "kernels/error.h"

namespace axle::inline v0::kernels {

// Throws CudaError "op: what failed: name: text, at file:line". A lack of memory is no business of
// it: the allocator looks at that itself.
[[noreturn]] void throw_cuda_error(cudaError_t error, const char* what, std::source_location at);

inline void check_cuda(cudaError_t error, const char* what,
                       std::source_location at = std::source_location::current()) {
    if (error != cudaSuccess) [[unlikely]]
        throw_cuda_error(error, what, at);
}

}  // namespace axle::inline v0::kernels
