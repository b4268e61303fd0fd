// Tests pooling in sizes that cuDNN supports on a real GPU. On the simulated GPU, Axle uses its own
// kernels.
#include <functional>
#include <limits>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "tests/close.h"
#include "tests/cuda/gpu.h"

namespace axle::tests {
namespace {

#if AXLE_SIMULATED_GPU
constexpr std::int64_t kChannels = 2;  // the simulated GPU is slow
#else
constexpr std::int64_t kChannels = 128;  // the images have 2^20 elements and more
#endif

using Call = std::function<Tensor(const Tensor&)>;

// Returns images with a NaN, and with a window that contains only -infinity.
Tensor images() {
    Tensor x = randn({2, kChannels, 66, 66});
    x.data<float>()[700] = std::numeric_limits<float>::quiet_NaN();
    for (const int place : {0, 1, 66, 67})
        x.data<float>()[place] = -std::numeric_limits<float>::infinity();
    return x;
}

class GpuPool : public GpuTest {};

TEST_F(GpuPool, PoolsLargeImagesLikeTheCpu) {
    manual_seed(1);
    const Tensor x = images();
    const std::vector<Call> calls = {
        [](const Tensor& t) { return max_pool2d(t, 2); },
        [](const Tensor& t) {
            return max_pool2d(t, 3, {.stride = 2, .padding = 1, .ceil_mode = true});
        },
        [](const Tensor& t) { return adaptive_max_pool2d(t, 11); },
        [](const Tensor& t) { return avg_pool2d(t, 3, {.stride = 2, .padding = 1}); },
        [](const Tensor& t) {
            return avg_pool2d(
                t, 3, {.stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false});
        },
        [](const Tensor& t) { return avg_pool2d(t, 2, {.divisor_override = 3}); },
        [](const Tensor& t) { return adaptive_avg_pool2d(t, 1); }};
    for (const DType dtype : {f32, f16, bf16})
        for (std::size_t i = 0; i < calls.size(); ++i) {
            SCOPED_TRACE(str(dtype, ", call ", i));
            const Tensor given = to(x, dtype);
            expect_close(to(calls[i](to(given, kGpu)), Device::cpu()), calls[i](to(given, f64)),
                         dtype == f32   ? 1e-5
                         : dtype == f16 ? 1e-3
                                        : 1e-2);
        }
}

TEST_F(GpuPool, ComputesGradientsOfAveragePoolingLikeTheCpu) {
    manual_seed(2);
    const Tensor x = randn({2, kChannels, 66, 66}), weights = randn({2, kChannels, 33, 33});
    for (const bool inside : {false, true})
        for (const DType dtype : {f32, bf16}) {
            SCOPED_TRACE(str(dtype, inside));
            const auto gradient = [&](Device device, DType type) {
                const Tensor leaf = to(to(x, type), device).set_requires_grad();
                const Tensor y =
                    avg_pool2d(leaf, 3, {.stride = 2, .padding = 1, .count_include_pad = !inside});
                sum(to(y, type == f64 ? f64 : f32) *
                    to(to(weights, type == f64 ? f64 : f32), device))
                    .backward();
                return to(leaf.grad(), Device::cpu());
            };
            expect_close(gradient(kGpu, dtype), gradient(Device::cpu(), f64),
                         dtype == f32 ? 1e-5 : 1e-2);
        }
}

}  // namespace
}  // namespace axle::tests
