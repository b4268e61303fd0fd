// Tests matrix products with a bias that is not aligned to 16 bytes, TF32, and products that
// cuBLASLt cannot compute.
#include <cstdlib>
#include <map>
#include <string>

#include "core/ops.h"
#include "core/random.h"
#include "core/system/numerics.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/cuda/gpu.h"
#include "tests/log_capture.h"
#if AXLE_SIMULATED_GPU
#include "tests/simulator/simulator.h"
#endif

namespace axle::tests {
namespace {

Tensor on_cpu(const Tensor& x) { return to(x.detach(), Device::cpu()); }

class GpuMatmul : public GpuTest {
  protected:
    void TearDown() override { set_float32_matmul_precision(MatmulPrecision::highest); }
};

TEST_F(GpuMatmul, AddsABiasThatIsNotAligned) {
    manual_seed(1);
    const Tensor x = randn({40, 32}), w = randn({64, 32}), all = randn({80});
    for (const DType dtype : {f32, bf16})
        for (const std::int64_t offset : {0, 1, 3}) {
            SCOPED_TRACE(str(dtype, ", offset ", offset));
            const Tensor wide = to(all, dtype);
            const Tensor expected = linear(to(to(x, dtype), f64), to(to(w, dtype), f64),
                                           to(narrow(wide, 0, offset, 64), f64));
            const Tensor bias = narrow(to(wide, kGpu), 0, offset, 64);
            const Tensor y = linear(to(to(x, dtype), kGpu), to(to(w, dtype), kGpu), bias);
            expect_close(on_cpu(y), expected, dtype == f32 ? 1e-5 : 1e-2);
        }
}

#if AXLE_SIMULATED_GPU
// Covers 8.TF32.
TEST_F(GpuMatmul, ComputesInTf32OnlyForF32WithHighPrecision) {
    const auto calls = [](const char* compute) {
        return kernels::simulator::calls_of(str("cublasLtMatmul CUBLAS_COMPUTE_", compute));
    };
    struct Case {
        MatmulPrecision precision;
        DType dtype;
        const char* expected;
    };
    for (const Case& c :
         {Case{MatmulPrecision::highest, f32, "32F"},
          Case{MatmulPrecision::high, f32, "32F_FAST_TF32"},
          Case{MatmulPrecision::high, bf16, "32F"}, Case{MatmulPrecision::high, f64, "64F"},
          Case{MatmulPrecision::highest, f32, "32F"}}) {
        SCOPED_TRACE(str(c.dtype, ", expected ", c.expected));
        const Tensor x = to(ones({24, 40}, {.dtype = c.dtype}), kGpu);
        std::map<std::string, std::int64_t> before;
        for (const char* compute : {"32F", "32F_FAST_TF32", "64F"})
            before[compute] = calls(compute);
        set_float32_matmul_precision(c.precision);
        EXPECT_EQ(matmul(x, x.t()).select(0, 0).select(0, 0).item(), 40);
        for (const auto& [compute, count] : before) {
            if (compute == c.expected) {
                EXPECT_GT(calls(compute.c_str()), count) << compute;
            } else {
                EXPECT_EQ(calls(compute.c_str()), count) << compute;
            }
        }
    }
}

TEST_F(GpuMatmul, WarnsIfCublasLtHasNoAlgorithm) {
    const Tensor x = randn({5, 7}, {.device = kGpu});
    setenv("AXLE_CUBLASLT_REFUSE", "1", 1);  // cuBLASLt rejects products without an epilogue
    LogCapture log;
    const Tensor y = matmul(x, x.t());
    zeros({1}, {.device = kGpu});  // warnings are logged at the next launch
    unsetenv("AXLE_CUBLASLT_REFUSE");
    const Tensor cpu = on_cpu(x);
    expect_close(on_cpu(y), matmul(cpu, cpu.t()), 1e-5);
    EXPECT_THAT(log.lines(),
                testing::Contains(testing::HasSubstr("matmul: cuBLASLt has no algorithm")));
}
#endif

}  // namespace
}  // namespace axle::tests
