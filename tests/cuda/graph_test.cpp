// CUDA graphs, and training steps compiled to them.
#include "core/graph.h"

#include <cmath>

#include "accel/accelerator.h"
#include "core/autograd/autograd.h"
#include "core/numerics.h"
#include "core/ops.h"
#include "core/random.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "optim/adam.h"
#include "optim/schedules/schedules.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/cuda/gpu.h"

namespace axle::tests {
namespace {

class GpuGraph : public GpuTest {};

Tensor on_cpu(const Tensor& x) { return to(x.detach(), Device::cpu()); }

TEST_F(GpuGraph, ReplaysOnNewInput) {
    Tensor x = ones({8, 8}, {.device = kGpu});
    const Tensor w = randn({8, 8}, {.device = kGpu});
    relu(matmul(x, w));
    Graph graph;
    EXPECT_FALSE(graph.captured());
    Tensor y;
    {
        GraphCapture capture(graph);
        EXPECT_TRUE(is_capturing());
        y = relu(matmul(x, w)) + 1;
        capture.end();
    }
    EXPECT_FALSE(is_capturing());
    for (int i = 0; i < 3; ++i) {
        const Tensor input = randn({8, 8}, {.device = kGpu});
        x.copy_(input);
        graph.replay();
        expect_same_bits(on_cpu(y), on_cpu(relu(matmul(input, w)) + 1));
    }
}

TEST_F(GpuGraph, DrawsTheSameRandomNumbersAsWithoutAGraph) {
    const Tensor x = ones({1000}, {.device = kGpu});
    const auto draw = [&] { return dropout(x, 0.5) + rand({1000}, {.device = kGpu}); };
    draw();
    Graph graph;
    Tensor y;
    {
        GraphCapture capture(graph);
        y = draw();
        capture.end();
    }
    manual_seed(3);
    std::vector<Tensor> expected;
    for (int i = 0; i < 3; ++i) expected.push_back(on_cpu(draw()));
    const GeneratorState after = generator_state();
    manual_seed(3);
    for (int i = 0; i < 3; ++i) {
        graph.replay();
        expect_same_bits(on_cpu(y), expected[static_cast<std::size_t>(i)]);
    }
    EXPECT_EQ(generator_state(), after);
}

TEST_F(GpuGraph, UsesNewRoundingBitsInEveryReplay) {
    const auto weights = [](bool captured) {
        manual_seed(6);
        const Tensor w = ones({1000}, {bf16, kGpu}).set_requires_grad();
        w.set_grad(full({1000}, 0x1p-10, {f32, kGpu}));
        optim::SGD sgd({w}, {.lr = 1, .stochastic_rounding = true});
        sgd.step();
        std::vector<Tensor> all;
        Graph graph;
        if (captured) {
            GraphCapture capture(graph);
            sgd.step();
            capture.end();
        }
        for (int i = 0; i < 4; ++i) {
            captured ? graph.replay() : sgd.step();
            all.push_back(on_cpu(w));
        }
        return all;
    };
    const std::vector<Tensor> replayed = weights(true), stepped = weights(false);
    for (std::size_t i = 0; i < stepped.size(); ++i) expect_same_bits(replayed[i], stepped[i]);
    EXPECT_LT(stepped[3].to(f32).mean().item(), stepped[0].to(f32).mean().item());
}

TEST_F(GpuGraph, RefusesToSeedStochasticRoundingDuringCapture) {
    const Tensor w = ones({8}, {bf16, kGpu}).set_requires_grad();
    w.set_grad(ones({8}, {bf16, kGpu}));
    optim::SGD sgd({w}, {.stochastic_rounding = true});
    Graph graph;
    const auto capture = [&] {
        GraphCapture scope(graph);
        sgd.step();
    };
    expect_error<UsageError>({"SGD: the seed of stochastic rounding", "take a step before"},
                             capture);
}

TEST_F(GpuGraph, KeepsItsMemoryPrivate) {
    Tensor x = full({1 << 16}, 2, {.device = kGpu});
    Graph graph;
    Tensor y;
    {
        GraphCapture capture(graph);
        const Tensor inner = x * x;  // freed during the capture
        y = inner + 1;
        capture.end();
    }
    std::vector<Tensor> others;
    for (int i = 0; i < 8; ++i) others.push_back(full({1 << 16}, 9, {.device = kGpu}));
    graph.replay();
    EXPECT_EQ(y.max().item(), 5);
    for (const Tensor& other : others) EXPECT_EQ(other.min().item(), 9);
}

TEST_F(GpuGraph, RefusesToReadDeviceMemoryDuringCapture) {
    const Tensor x = ones({3}, {.device = kGpu});
    Graph graph;
    const auto capture = [&] {
        GraphCapture scope(graph);
        x.sum().item();
    };
    expect_error<UsageError>({"to: reads the GPU's memory", "graph"}, capture);
    EXPECT_FALSE(graph.captured());
    EXPECT_FALSE(is_capturing());
    expect_error<UsageError>({"graph: nothing has been captured"}, [&] { graph.replay(); });
    EXPECT_EQ(x.sum().item(), 3);  // normal work continues
}

// --- compiled steps

struct Net : nn::Model<Net> {
    Net() : up(6, 16), drop(0.3), down(16, 3) {}
    Tensor forward(const Tensor& x) { return down(drop(relu(up(x)))); }
    void visit(nn::Visitor& v) override { v("up", up), v("drop", drop), v("down", down); }
    nn::Linear up;
    nn::Dropout drop;
    nn::Linear down;
};

struct Trained {
    std::vector<double> losses;
    std::vector<Tensor> weights;
    std::int64_t captures = 0, replays = 0;
    double lr = 0;
};

// Trains with all features of a training step; the 9th batch has another size.
Trained train(bool compiled, int accumulation, int batches) {
    manual_seed(21);
    Net net;
    optim::AdamW adamw(net.parameters(), {.lr = 0.05});
    optim::StepLR schedule(adamw, 3, 0.5);
    Accelerator accelerator({.gradient_accumulation_steps = accumulation});
    accelerator.prepare(net, adamw, schedule);
    const auto body = [&](Tree& batch) {
        auto scope = accelerator.accumulate(net);
        Tensor loss = cross_entropy(net(batch["x"]), batch["y"]);
        accelerator.backward(loss);
        if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(net.parameters(), 1.0);
        adamw.step();
        schedule.step();
        adamw.zero_grad();
        return loss;
    };
    auto step = accelerator.compile(body);
    Trained result;
    for (int i = 0; i < batches; ++i) {
        const std::int64_t n = i == 8 ? 3 : 5;
        manual_seed(static_cast<std::uint64_t>(100 + i));
        Tree batch{{"x", randn({n, 6}, {.device = kGpu})}, {"y", randint(0, 3, {n}, {i64, kGpu})}};
        result.losses.push_back(compiled ? step(batch).item() : body(batch).item());
    }
    for (const Tensor& p : net.parameters()) result.weights.push_back(on_cpu(p));
    result.captures = step.captures();
    result.replays = step.replays();
    result.lr = adamw.param_groups()[0].lr;
    return result;
}

class CompiledStepOnGpu : public GpuTest {
  protected:
    void TearDown() override { use_deterministic_algorithms(false); }
};

TEST_F(CompiledStepOnGpu, MatchesTheEagerStepBitForBit) {
    use_deterministic_algorithms(true);
    for (const int accumulation : {1, 2, 4}) {
        SCOPED_TRACE(accumulation);
        const int batches = accumulation == 4 ? 34 : 14;
        const Trained eager = train(false, accumulation, batches);
        const Trained compiled = train(true, accumulation, batches);
        EXPECT_EQ(compiled.losses, eager.losses);
        EXPECT_EQ(compiled.lr, eager.lr);
        for (std::size_t i = 0; i < eager.weights.size(); ++i)
            expect_same_bits(compiled.weights[i], eager.weights[i]);
        EXPECT_GT(compiled.captures, 0);
        if (accumulation == 1) {
            EXPECT_EQ(compiled.replays, 14 - 3 - 1 - 1);
        }
    }
}

TEST_F(CompiledStepOnGpu, FallsBackToEagerWhenTheStepReadsAValue) {
    Net net;
    Accelerator accelerator;
    accelerator.prepare(net);
    auto step = accelerator.compile([&](Tree& batch) {
        const Tensor y = net(batch["x"]).sum();
        if (y.item() > 1e30) throw ValueError("diverged");
        return y;
    });
    for (int i = 0; i < 6; ++i) {
        Tree batch{{"x", full({2, 6}, i, {.device = kGpu})}};
        EXPECT_TRUE(std::isfinite(step(batch).item()));
    }
    EXPECT_EQ(step.eager_steps(), 6);
    EXPECT_EQ(step.captures(), 0);
}

}  // namespace
}  // namespace axle::tests
