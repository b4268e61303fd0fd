// Helpers of the tests in tests/cuda/. The tests run on a real GPU (test_cuda) and on the simulated
// GPU (test_cuda_simulated).
#pragma once

#include "core/cuda.h"
#include "core/tensor.h"
#include "gtest/gtest.h"
#include "tests/op_case.h"

namespace axle::tests {

inline constexpr Device kGpu = {Device::Type::cuda, 0};

// Copies x's whole storage to the GPU and returns the same view of the copy, with the same strides
// and offset.
Tensor on_gpu(const Tensor& x);
std::vector<Tensor> on_gpu(const std::vector<Tensor>& x);
Result on_cpu(Result r);

// A fixture that skips tests if there is no GPU.
class GpuTest : public testing::Test {
  protected:
    void SetUp() override {
        if (!cuda::is_available()) GTEST_SKIP() << "no GPU: " << cuda::why_unavailable();
    }
};

}  // namespace axle::tests
