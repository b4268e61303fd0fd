// Compares 8-bit floats on a GPU with the CPU. Conversions and current scales must match bit for
// bit; matrix products and delayed scales may differ by rounding.
#include "core/float8.h"

#include <vector>

#include "core/ops.h"
#include "core/random.h"
#include "nn/precision/float8.h"
#include "tests/close.h"
#include "tests/cuda/gpu.h"
#if AXLE_SIMULATED_GPU
#include "tests/simulator/simulator.h"
#endif

namespace axle::tests {
namespace {

Tensor on_cpu(const Tensor& x) { return x.to(Device::cpu()); }

// The tensor cores of a GPU of compute capability 9.0 add products of 8-bit floats with 13 mantissa
// bits. The bits are relative to the largest addend, and the rest is truncated. The DeepSeek-V3
// technical report (arXiv 2412.19437, section 3.3.2) measured about 14 bits, and SageAttention2
// (arXiv 2411.10958) calls the format FP22. A sum of a few instructions can lose a few units of
// 2^-13. The simulated GPU adds in f32.
#if AXLE_SIMULATED_GPU
constexpr double kSumTolerance = 1e-5;
#else
constexpr double kSumTolerance = 8 * 0x1p-13;
#endif

class GpuFloat8 : public GpuTest {};

TEST_F(GpuFloat8, RoundsToTheSameBitsAsTheCpu) {
    manual_seed(1);
    // The numbers have many magnitudes. One of the two views starts at an address that is not
    // aligned for packs.
    const Tensor all = randn({4099}) * pow(full({4099}, 2.0), randn({4099}) * 8.0);
    for (const DType from : {f32, f16, bf16, f64})
        for (const DType to : {DType::f8_e4m3, DType::f8_e5m2})
            for (const std::int64_t offset : {0, 3}) {
                const Tensor x = narrow(all.to(from), 0, offset, 4095);
                const Tensor scale = tensor({0.75, 1 / 0.75}, {2});
                Tensor largest = zeros({}), gpu_largest = zeros({}).to(kGpu);
                const Tensor expected = to_float8(x, to, scale, largest).values;
                const Tensor gpu_x = narrow(all.to(from).to(kGpu), 0, offset, 4095);
                const Float8Tensor y = to_float8(gpu_x, to, scale.to(kGpu), gpu_largest);
                expect_same_bits(float8_values(on_cpu(y.values)), float8_values(expected));
                expect_same_bits(on_cpu(float8_values(y.values)), float8_values(expected));
                EXPECT_EQ(gpu_largest.item(), largest.item());
            }
}

TEST_F(GpuFloat8, ComputesTheSameCurrentScalesAsTheCpu) {
    manual_seed(2);
    const Tensor x = randn({1000});
    for (const bool power_of_two : {false, true})
        expect_same_bits(on_cpu(to_float8(x.to(kGpu), DType::f8_e4m3, power_of_two).scale),
                         to_float8(x, DType::f8_e4m3, power_of_two).scale);
}

TEST_F(GpuFloat8, MultipliesLikeTheCpu) {
    manual_seed(3);
    const Tensor x = randn({19, 48}), w = randn({32, 48}) * 0.1;
    for (const DType gradient : {DType::f8_e4m3, DType::f8_e5m2})
        for (const DType out : {f32, bf16, f16})
            for (const bool emulate : {false, true}) {
                const auto product = [&](const Tensor& a, const Tensor& b) {
                    return float8_matmul(to_float8(a, gradient), to_float8(b, DType::f8_e4m3),
                                         {.dtype = out, .emulate = emulate});
                };
                expect_close(on_cpu(product(x.to(kGpu), w.to(kGpu))), product(x, w),
                             out != f32 ? 1e-2
                             : emulate  ? 1e-5
                                        : kSumTolerance);
            }
}

TEST_F(GpuFloat8, MatchesOutputsGradientsAndScalesOfTheCpu) {
    for (const nn::Float8Scaling scaling :
         {nn::Float8Scaling::current, nn::Float8Scaling::delayed}) {
        manual_seed(4);
        nn::Linear cpu(32, 16);
        ASSERT_TRUE(
            nn::use_float8(cpu, {.scaling = scaling, .most_recent = false, .history_length = 3}));
        nn::Linear gpu = cpu.clone();
        gpu.to(kGpu);
        for (int step = 0; step < 4; ++step) {
            const Tensor x = randn({20, 32}) * (1.0 + step), dy = randn({20, 16}) * 1e-3;
            const Tensor y = cpu(x), gpu_y = gpu(x.to(kGpu));
            sum(y * dy).backward();
            sum(gpu_y * dy.to(kGpu)).backward();
            expect_close(on_cpu(gpu_y.detach()), y.detach(), kSumTolerance);
            expect_close(on_cpu(gpu.weight.grad()), cpu.weight.grad(), kSumTolerance);
        }
        for (std::size_t b = 0; b < cpu.named_buffers().size(); ++b)
            expect_close(on_cpu(gpu.named_buffers()[b].second), cpu.named_buffers()[b].second,
                         1e-6);
    }
}

#if AXLE_SIMULATED_GPU
TEST_F(GpuFloat8, ReadsThePropertiesOfADeviceOnce) {
    EXPECT_TRUE(has_float8(kGpu));
    const std::int64_t before = kernels::simulator::calls_of("cudaGetDeviceProperties");
    EXPECT_TRUE(has_float8(kGpu));
    EXPECT_EQ(cuda::get_device_properties().major, 9);
    EXPECT_EQ(kernels::simulator::calls_of("cudaGetDeviceProperties"), before);
}
#endif

}  // namespace
}  // namespace axle::tests
