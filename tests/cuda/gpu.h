// What the tests of tests/cuda/ share. They run on a real GPU (test_cuda) and on the simulated one
// (test_cuda_simulated).
#pragma once

#include "core/cuda.h"
#include "core/tensor.h"
#include "gtest/gtest.h"
#include "tests/op_case.h"

namespace axle::tests {

inline constexpr Device kGpu = {Device::Type::cuda, 0};

// The same view of a copy of the whole memory: strides, offset and what lies in the gaps.
Tensor on_gpu(const Tensor& x);
std::vector<Tensor> on_gpu(const std::vector<Tensor>& x);
Result on_cpu(Result r);

// Cases of sizes that take a GPU's other ways: rows longer than a block, sums in parts, sorting.
const std::vector<OpCase>& size_cases();

// Says so and passes where there is no GPU.
class GpuTest : public testing::Test {
  protected:
    void SetUp() override {
        if (!cuda::is_available()) GTEST_SKIP() << "no GPU: " << cuda::why_unavailable();
    }
};

}  // namespace axle::tests
