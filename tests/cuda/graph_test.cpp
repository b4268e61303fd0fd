// Tests the replays of CUDA graphs, their memory and random numbers, and calls that a capture
// rejects.
#include "core/cuda/graph.h"

#include <cstdint>
#include <vector>

#include "core/ops.h"
#include "core/random.h"
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

TEST_F(GpuGraph, SharesMemoryWithOtherGraphsOfItsPool) {
    const Tensor x = full({8}, 3.0, {.device = kGpu});
    const auto work = [&](double factor) {
        const Tensor room = empty({64 << 20}, {.dtype = u8, .device = kGpu});
        return x * factor;
    };
    work(1);
    const GraphPool pool;
    std::vector<Graph> graphs;
    std::vector<Tensor> results;
    std::int64_t after_first = 0;
    for (int i = 0; i < 3; ++i) {
        GraphCapture capture(graphs.emplace_back(pool));
        results.push_back(work(i));
        capture.end();
        if (i == 0) after_first = cuda::memory_stats().reserved;
    }
    EXPECT_LT(cuda::memory_stats().reserved - after_first, 32 << 20);
    for (const std::size_t i : {2u, 0u, 1u}) {
        graphs[i].replay();
        expect_same_bits(on_cpu(results[i]), full({8}, 3.0 * static_cast<double>(i)));
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

TEST_F(GpuGraph, RejectsSeedingStochasticRoundingDuringCapture) {
    const Tensor w = ones({8}, {bf16, kGpu}).set_requires_grad();
    w.set_grad(ones({8}, {bf16, kGpu}));
    optim::SGD sgd({w}, {.stochastic_rounding = true});
    Graph graph;
    const auto capture = [&] {
        GraphCapture scope(graph);
        sgd.step();
    };
    expect_error<UsageError>(
        {"SGD: the first step chooses the seed of stochastic rounding", "take a step before"},
        capture);
}

TEST_F(GpuGraph, DoesNotShareItsMemoryWithOtherTensors) {
    Tensor x = full({1 << 16}, 2.0, {.device = kGpu});
    Graph graph;
    Tensor y;
    {
        GraphCapture capture(graph);
        const Tensor inner = x * x;  // freed during the capture
        y = inner + 1;
        capture.end();
    }
    std::vector<Tensor> others;
    for (int i = 0; i < 8; ++i) others.push_back(full({1 << 16}, 9.0, {.device = kGpu}));
    graph.replay();
    EXPECT_EQ(y.max().item(), 5);
    for (const Tensor& other : others) EXPECT_EQ(other.min().item(), 9);
}

TEST_F(GpuGraph, RejectsReadingDeviceMemoryDuringCaptureAndReplaysOfEmptyGraphs) {
    const Tensor x = ones({3}, {.device = kGpu});
    Graph graph;
    const auto capture = [&] {
        GraphCapture scope(graph);
        x.sum().item();
    };
    expect_error<UsageError>({"to: waits for the GPU", "graph"}, capture);
    EXPECT_FALSE(graph.captured());
    EXPECT_FALSE(is_capturing());
    expect_error<UsageError>({"Graph::replay: the graph is empty"}, [&] { graph.replay(); });
    EXPECT_EQ(x.sum().item(), 3);  // work outside the capture still runs
}

}  // namespace
}  // namespace axle::tests
