// Compares quantized weights on a GPU with the CPU.
#include "core/quantization/quantized_weight.h"

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "tests/close.h"
#include "tests/cuda/gpu.h"

namespace axle::tests {
namespace {

class GpuQuantizedWeight : public GpuTest {};

TEST_F(GpuQuantizedWeight, IsDequantizedToTheBitsOfTheCpu) {
    manual_seed(1);
    const Tensor weight = randn({300, 67});
    for (const WeightQuantization& options :
         {WeightQuantization{.format = WeightFormat::int8}, WeightQuantization{},
          WeightQuantization{.double_quantization = true}}) {
        const QuantizedWeight cpu = quantize_weight(weight, options);
        const QuantizedWeight gpu = quantize_weight(weight.to(kGpu), options);
        EXPECT_EQ(gpu.values.device(), kGpu);
        for (const DType dtype : {f32, bf16, f16, f64})
            expect_same_bits(dequantize_weight(gpu, dtype).to(Device::cpu()),
                             dequantize_weight(cpu, dtype));
    }
}

// The rows of the weight are dequantized in two blocks.
TEST_F(GpuQuantizedWeight, IsMultipliedLikeOnTheCpu) {
    manual_seed(2);
    const Tensor weight = randn({900, 1300});
    const QuantizedWeight cpu = quantize_weight(weight), gpu = quantize_weight(weight.to(kGpu));
    Tensor x = randn({3, 1300}), gpu_x = x.to(kGpu).requires_grad_();
    x.requires_grad_();
    const Tensor dy = randn({3, 900});
    const Tensor y = quantized_linear(x, cpu), gpu_y = quantized_linear(gpu_x, gpu);
    expect_close(gpu_y.detach().to(Device::cpu()), y.detach(), 1e-5);
    sum(y * dy).backward();
    sum(gpu_y * dy.to(kGpu)).backward();
    expect_close(gpu_x.grad().to(Device::cpu()), x.grad(), 1e-5);
}

}  // namespace
}  // namespace axle::tests
