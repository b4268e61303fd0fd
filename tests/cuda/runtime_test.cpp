// Tests the GPU runtime in unusual situations, such as captures during other work, destroyed
// streams, little memory, and events that were not recorded.
#include <algorithm>
#include <random>
#include <thread>

#include "core/autograd/autograd.h"
#include "core/cuda/graph.h"
#include "core/ops.h"
#include "core/random.h"
#include "tests/close.h"
#include "tests/cuda/gpu.h"

namespace axle::tests {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

Tensor bytes(std::int64_t n) { return empty({n}, {.dtype = u8, .device = kGpu}); }
Tensor on_cpu(const Tensor& x) { return to(x.detach(), Device::cpu()); }

class GpuAllocator : public GpuTest {
  protected:
    void SetUp() override {
        GpuTest::SetUp();
        if (!IsSkipped()) cuda::empty_cache();
    }
    void TearDown() override {
        if (!IsSkipped()) cuda::set_memory_limit(0);
    }
};

// Returns the first and the last elements of a block. The simulated GPU is too slow to test all
// elements.
std::vector<Tensor> ends(const Tensor& block) {
    const std::int64_t n = std::min<std::int64_t>(block.numel(), 700);
    return {block.narrow(0, 0, n), block.narrow(0, block.numel() - n, n)};
}
void mark(const Tensor& block, int value) {
    for (Tensor end : ends(block)) end.fill_(value);
}
void expect_marked(const Tensor& block, int value) {
    for (const Tensor& end : ends(block)) {
        EXPECT_EQ(end.min().item(), value);
        EXPECT_EQ(end.max().item(), value);
    }
}

std::int64_t reserved() { return cuda::memory_stats().reserved; }

// The test allocates large and small blocks, and releases the cache in between.
TEST_F(GpuAllocator, PreservesContentsWhileMemoryGrowsAndShrinks) {
    struct Held {
        Tensor block;
        int mark;
    };
    std::mt19937 random(5);
    std::vector<Held> held;
    const std::int64_t before = reserved();
    cuda::set_memory_limit(before + 300 * kMiB);
    for (int i = 0; i < 150; ++i) {
        const bool takes = held.size() < 3 || (held.size() < 12 && random() % 2 == 0);
        if (takes) {
            const auto size = static_cast<std::int64_t>(random() % (1u << (10 + random() % 15)));
            held.push_back({bytes(1 + size), i % 251});
            mark(held.back().block, held.back().mark);
            continue;
        }
        const std::size_t victim = random() % held.size();
        const Held gone = std::move(held[victim]);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(victim));
        expect_marked(gone.block, gone.mark);
        if (random() % 4 == 0) cuda::empty_cache();
    }
    for (const Held& h : held) expect_marked(h.block, h.mark);
    held.clear();
    cuda::empty_cache();
    EXPECT_EQ(reserved(), before);
}

TEST_F(GpuAllocator, WaitsForOtherStreamsBeforeRunningOutOfMemory) {
    const cuda::Stream side;
    Tensor x = bytes(30 * kMiB);
    mark(x, 3);
    const Tensor adjacent = bytes(2 * kMiB);
    side.wait_stream(cuda::current_stream());
    Tensor y;
    {
        const cuda::StreamGuard guard(side);
        y = ends(x)[1].max();
        x.impl()->storage->record_stream(0);
    }
    cuda::set_memory_limit(reserved() + 4 * kMiB);
    x = {};
    const Tensor again = bytes(30 * kMiB);
    mark(again, 4);
    cuda::synchronize();
    EXPECT_EQ(y.item(), 3);
    expect_marked(again, 4);
}

TEST_F(GpuAllocator, AllowsFreeingBlocksOfDestroyedStreams) {
    Tensor x = full({5000}, 3.0, {.device = kGpu});
    {
        const cuda::Stream side;
        side.wait_stream(cuda::current_stream());
        const cuda::StreamGuard guard(side);
        EXPECT_EQ(x.sum().item(), 15000);
        x.impl()->storage->record_stream(0);
    }
    x = {};
    EXPECT_EQ(full({5000}, 2.0, {.device = kGpu}).sum().item(), 10000);
}

TEST_F(GpuAllocator, AllowsFreeingTensorsOnAnotherThread) {
    Tensor x;
    std::thread([&] { x = full({5000}, 3.0, {.device = kGpu}); }).join();
    EXPECT_EQ(x.sum().item(), 15000);
    std::thread([gone = std::move(x)] {}).join();
    EXPECT_EQ(full({5000}, 2.0, {.device = kGpu}).sum().item(), 10000);
}

TEST_F(GpuAllocator, ReleasesGraphMemoryWithItsLastTensor) {
    const Tensor x = ones({1000}, {.device = kGpu});
    static_cast<void>(x + 1);
    cuda::empty_cache();
    const std::int64_t before = reserved();
    for (int i = 0; i < 3; ++i) {
        Tensor y;
        {
            Graph graph;
            GraphCapture capture(graph);
            y = x + 1;
            capture.end();
            graph.replay();
        }
        EXPECT_GT(reserved(), before);
        EXPECT_EQ(y.sum().item(), 2000);
        y = {};
        cuda::empty_cache();
        EXPECT_EQ(reserved(), before);
    }
}

class GpuCapture : public GpuTest {};

// Computes y = f() in a graph that is replayed once.
template <class F>
Tensor replayed(Graph& graph, F&& f) {
    Tensor y;
    GraphCapture capture(graph);
    y = f();
    capture.end();
    graph.replay();
    return y;
}

TEST_F(GpuCapture, AllowsFreeingMemoryThatOtherStreamsUse) {
    const cuda::Stream side;
    const Tensor x = ones({1000}, {.device = kGpu});
    static_cast<void>(x + 1);
    Tensor before = ones({1000}, {.device = kGpu});
    Tensor within = ones({1000}, {.device = kGpu});
    for (const Tensor& t : {before, within}) {
        const cuda::StreamGuard guard(side);
        t.impl()->storage->record_stream(0);
    }
    const Tensor pinned = ones({1000}).pin_memory();
    static_cast<void>(to(pinned.clone().pin_memory(), kGpu, true));
    before = {};
    Graph graph;
    const Tensor y = replayed(graph, [&] {
        const Tensor inner = x + 1;
        inner.impl()->storage->record_stream(0);
        within = {};
        static_cast<void>(ones({1000}).pin_memory());
        return inner + 1;
    });
    EXPECT_EQ(y.sum().item(), 3000);
}

TEST_F(GpuCapture, ReservesTheMemoryOfJoinedStreamsForTheGraph) {
    const Tensor x = full({4096}, 2.0, {.device = kGpu});
    static_cast<void>((x * x).sum());
    const cuda::Stream side;
    {
        const cuda::StreamGuard guard(side);
        static_cast<void>((x * x).sum());
    }
    cuda::synchronize();
    Graph graph;
    Tensor y;
    {
        GraphCapture capture(graph);
        const cuda::Stream main = cuda::current_stream();
        side.wait_stream(main);
        {
            const cuda::StreamGuard guard(side);
            y = x * x + 1;  // the product's memory can be reused
        }
        main.wait_stream(side);
        capture.end();
    }
    std::vector<Tensor> others;
    {
        const cuda::StreamGuard guard(side);
        for (int i = 0; i < 4; ++i) others.push_back(full({4096}, 9.0, {.device = kGpu}));
    }
    cuda::synchronize();
    graph.replay();
    EXPECT_EQ(y.max().item(), 5);
    for (const Tensor& other : others) EXPECT_EQ(on_cpu(other).min().item(), 9);
}

TEST_F(GpuCapture, AllowsOtherThreadsToUseTheGpu) {
    const Tensor x = ones({100}, {.device = kGpu});
    static_cast<void>(x + 1);
    Graph graph;
    double sum = 0;
    const Tensor y = replayed(graph, [&] {
        std::thread([&] {
            const Tensor host = ones({3000}).pin_memory();
            sum = to(host, kGpu, true).sum().item();
        }).join();
        return x + 1;
    });
    EXPECT_EQ(sum, 3000);
    EXPECT_EQ(y.sum().item(), 200);
}

TEST_F(GpuCapture, RejectsOperationsThatCannotBeReplayed) {
    const Tensor host = ones({3}), pinned = ones({3}).pin_memory();
    Graph graph;
    const auto capture = [&](auto f) {
        return [&graph, f] {
            GraphCapture scope(graph);
            f();
        };
    };
    expect_error<UsageError>({"to: reads the CPU's memory"}, capture([&] { to(host, kGpu); }));
    expect_error<UsageError>({"to: reads the CPU's memory"},
                             capture([&] { to(pinned, kGpu, true); }));
    expect_error<UsageError>({"manual_seed", "capture"}, capture([] { manual_seed(1); }));
    EXPECT_FALSE(is_capturing());
    EXPECT_EQ(capture_id(), 0u);
}

TEST_F(GpuCapture, RepeatsDropoutInCheckpointedBackward) {
    Tensor x = ones({50, 20}, {.device = kGpu});
    x.set_requires_grad();
    const auto square = [](const std::vector<Tensor>& in) {
        const Tensor kept = dropout(in[0], 0.5);
        return kept * kept;
    };
    const auto difference = [&] {
        const Tensor y = checkpoint(square, {x});
        y.sum().backward();
        const Tensor g = x.grad();
        x.zero_grad();
        return (g - 2 * y.detach()).abs().max();
    };
    EXPECT_EQ(difference().item(), 0);
    Graph graph;
    const Tensor in_graph = replayed(graph, difference);
    EXPECT_EQ(in_graph.item(), 0);
    graph.replay();
    EXPECT_EQ(in_graph.item(), 0);
}

class GpuEvents : public GpuTest {};

TEST_F(GpuEvents, AreCompleteButHaveNoTimesBeforeTheyAreRecorded) {
    const cuda::Event event;
    EXPECT_TRUE(event.query());
    event.synchronize();
    event.wait(cuda::current_stream());
    expect_error<UsageError>({"Event", "not recorded"}, [&] { event.elapsed_time(event); });
}

}  // namespace
}  // namespace axle::tests
