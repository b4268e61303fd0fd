// A shared library with a kernel that `axle bench --library` compares with Axle's kernel.
//
//     c++ -std=c++20 -O3 -shared -fPIC -I PREFIX/include own_kernel.cpp -o own_kernel.so
//     axle bench matmul:512x512x512 --library own_kernel.so
// [library]
#include <algorithm>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include <axle/kernels/kernel_library.h>

namespace {

// Computes rows [begin, end) of c = a b, for row-major matrices.
void multiply_rows(const AxleKernelCall& call, std::int64_t begin, std::int64_t end) {
    const AxleKernelView &a = call.inputs[0], &b = call.inputs[1], &c = call.outputs[0];
    const std::int64_t inner = a.shape[1], width = c.shape[1];
    for (std::int64_t m = begin; m < end; ++m) {
        float* const sums = static_cast<float*>(c.data) + m * c.stride[0];
        std::fill_n(sums, width, 0.0f);
        for (std::int64_t k = 0; k < inner; ++k) {
            const float factor = static_cast<const float*>(a.data)[m * a.stride[0] + k];
            const float* const row = static_cast<const float*>(b.data) + k * b.stride[0];
            for (std::int64_t n = 0; n < width; ++n) sums[n] += factor * row[n];
        }
    }
}

std::int32_t matmul(const AxleKernelCall* call) {
    const AxleKernelView &a = call->inputs[0], &b = call->inputs[1];
    if (a.dtype != AXLE_F32 || a.stride[1] != 1 || b.stride[1] != 1) return 1;  // not supported
    std::vector<std::jthread> threads;
    for (std::int32_t t = 1; t < call->threads; ++t)
        threads.emplace_back(multiply_rows, std::cref(*call), a.shape[0] * t / call->threads,
                             a.shape[0] * (t + 1) / call->threads);
    multiply_rows(*call, 0, a.shape[0] / call->threads);
    return 0;  // after the other threads have ended
}

constexpr AxleKernel kKernels[] = {{"matmul", "own", matmul}};
constexpr AxleKernelLibrary kLibrary = {AXLE_KERNEL_LIBRARY_VERSION, 1, kKernels};

}  // namespace

extern "C" [[gnu::visibility("default")]] const AxleKernelLibrary* axle_kernel_library(
    std::uint32_t version) {
    return version == AXLE_KERNEL_LIBRARY_VERSION ? &kLibrary : nullptr;
}
// [/library]
