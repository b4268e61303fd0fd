// The network and the fixture of tests that compare compiled training steps with eager steps.
#pragma once

#include "core/ops.h"
#include "core/system/numerics.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "tests/cuda/gpu.h"

namespace axle::tests {

struct Net : nn::Model<Net> {
    Net() : up(6, 16), drop(0.3), down(16, 3) {}
    Tensor forward(const Tensor& x) { return down(drop(relu(up(x)))); }
    void visit(nn::Visitor& v) override { v("up", up), v("drop", drop), v("down", down); }
    nn::Linear up;
    nn::Dropout drop;
    nn::Linear down;
};

class DeterministicGpuTest : public GpuTest {
  protected:
    void SetUp() override {
        GpuTest::SetUp();
        use_deterministic_algorithms(true);
    }
    void TearDown() override { use_deterministic_algorithms(false); }
};

}  // namespace axle::tests
