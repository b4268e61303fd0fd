// Tests the caching allocators, streams, events, copies between devices, and errors that kernels
// report.
#include <map>
#include <random>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/cuda/gpu.h"
#if AXLE_SIMULATED_GPU
#include <cuda_runtime_api.h>

#include "core/cuda/memory.h"
#include "tests/simulator/simulator.h"
#endif

namespace axle::tests {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

class GpuMemory : public GpuTest {
  protected:
    void SetUp() override {
        GpuTest::SetUp();
        if (IsSkipped()) return;
        cuda::empty_cache();
        before_ = cuda::memory_stats();
        cuda::reset_peak_memory_stats();
    }
    void TearDown() override {
        if (!IsSkipped()) cuda::set_memory_limit(0);
    }
    std::int64_t in_use() const { return cuda::memory_stats().current - before_.current; }

    MemoryStats before_;
};

Tensor bytes(std::int64_t n) { return empty({n}, {.dtype = u8, .device = kGpu}); }

TEST_F(GpuMemory, CountsCurrentPeakAndReservedBytes) {
    Tensor a = bytes(1000);
    EXPECT_EQ(in_use(), 1024);
    Tensor b = bytes(3 * kMiB);
    EXPECT_EQ(in_use(), 1024 + 3 * kMiB);
    a = {};
    EXPECT_EQ(in_use(), 3 * kMiB);
    b = {};
    EXPECT_EQ(in_use(), 0);
    EXPECT_EQ(cuda::memory_stats().peak - before_.current, 1024 + 3 * kMiB);
    EXPECT_GT(cuda::memory_stats().reserved, 0);
    cuda::empty_cache();
    EXPECT_EQ(cuda::memory_stats().reserved, before_.reserved);
}

TEST_F(GpuMemory, AllocatesNoDriverMemoryInASteadyState) {
    const auto step = [] {
        const Tensor a = randn({300, 40}, {.device = kGpu}), b = randn({40, 50}, {.device = kGpu});
        return matmul(a, b).sum().item();
    };
    step();
    const std::int64_t asked = cuda::memory_stats().system_allocations;
    for (int i = 0; i < 5; ++i) step();
    EXPECT_EQ(cuda::memory_stats().system_allocations, asked);
}

// The test allocates and frees blocks of random sizes. No two blocks overlap, and each block keeps
// its contents.
TEST_F(GpuMemory, NeverReturnsOverlappingBlocks) {
    struct Held {
        Tensor block;
        int mark;
    };
    std::mt19937 random(3);
    std::vector<Held> held;
    for (int i = 0; i < 400; ++i) {
        if (held.size() < 5 || (held.size() < 40 && random() % 2 == 0)) {
            const int magnitude = static_cast<int>(random() % 15);
            Tensor block = bytes(1 + static_cast<std::int64_t>(random() % (1u << magnitude)));
            block.fill_(i % 251);
            held.push_back({block, i % 251});
            continue;
        }
        const std::size_t victim = random() % held.size();
        const Tensor& block = held[victim].block;
        ASSERT_EQ(block.min().item(), held[victim].mark);
        ASSERT_EQ(block.max().item(), held[victim].mark);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(victim));
        if (i % 97 == 0) cuda::empty_cache();
    }
    std::map<std::uintptr_t, std::uintptr_t> ranges;
    for (const Held& h : held) {
        const auto from = reinterpret_cast<std::uintptr_t>(h.block.raw_data());
        ranges[from] = from + static_cast<std::uintptr_t>(h.block.numel());
    }
    std::uintptr_t end = 0;
    for (const auto& [from, to] : ranges) {
        EXPECT_GE(from, end);
        EXPECT_EQ(from % 512, 0u);
        end = to;
    }
}

TEST_F(GpuMemory, ThrowsOutOfMemoryAndKeepsTensorsUsable) {
    const Tensor kept = ones({1000}, {.device = kGpu});
    cuda::set_memory_limit(cuda::memory_stats().reserved + 30 * kMiB);
    Tensor cached = bytes(16 * kMiB);
    cached = {};
    try {
        bytes(100 * kMiB);
        FAIL() << "more memory than the limit was allocated";
    } catch (const OutOfMemory& error) {
        EXPECT_EQ(error.requested, 100 * kMiB);
        EXPECT_THAT(error.what(), testing::HasSubstr("out of memory on cuda:0: 104857600 bytes"));
    }
    EXPECT_EQ((kept + kept).sum().item(), 2000);
    // Only 14 MiB are left below the limit if the cached 16 MiB are not released.
    EXPECT_EQ(bytes(25 * kMiB).fill_(1).numel(), 25 * kMiB);
}

// Memory of one stream must not be reused while another stream still reads it.
TEST_F(GpuMemory, IsReusedOnlyAfterRecordedStreamsFinish) {
    const cuda::Stream side;
    Tensor x = full({4096}, 3.0, {.device = kGpu});
    Tensor y;
    side.wait_stream(cuda::current_stream());
    {
        const cuda::StreamGuard guard(side);
        y = x + x;
        x.impl()->storage->record_stream(0);
    }
    x = {};
    const Tensor other = full({4096}, 7.0, {.device = kGpu});
    cuda::synchronize();
    EXPECT_EQ(to(y, Device::cpu()).max().item(), 6);
    EXPECT_EQ(other.min().item(), 7);
}

TEST_F(GpuMemory, KeepsPinnedMemoryUntilAsynchronousCopiesEnd) {
    const Tensor host = arange(5000, {f32});
    Tensor pinned = host.pin_memory();
    EXPECT_TRUE(pinned.is_pinned());
    EXPECT_TRUE(pinned.pin_memory().is_same(pinned));
    const Tensor copy = to(pinned, kGpu, true);
    // The pinned block must not be reused before the copy has run.
    pinned = {};
    Tensor next = zeros({5000}).pin_memory();
    expect_same_bits(to(copy, Device::cpu()), host);
    EXPECT_EQ(next.sum().item(), 0);
}

#if AXLE_SIMULATED_GPU
TEST_F(GpuMemory, IsMappedWithFewDriverCalls) {
    const std::int64_t before = kernels::simulator::calls_of("cuMemMap");
    const Tensor large = bytes(410 * kMiB);
    EXPECT_LE(kernels::simulator::calls_of("cuMemMap") - before, 21);
}

// An event can be recorded only on streams of the device on which it was created. With an event of
// another device, the allocator would return the block to the driver. The driver would wait for the
// stream.
TEST_F(GpuMemory, KeepsPinnedBlocksUntilStreamsOfOtherDevicesFinish) {
    kernels::simulator::set_device_count(2);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    void* const block = cuda::pinned_memory::allocate(5000);
    bool done = false;
    ASSERT_EQ(cudaLaunchHostFunc(
                  stream, [](void* flag) { *static_cast<bool*>(flag) = true; }, &done),
              cudaSuccess);
    cuda::pinned_memory::record_stream(block, stream);
    cuda::pinned_memory::deallocate(block);
    EXPECT_FALSE(done);
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 0);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_TRUE(done);
    void* const again = cuda::pinned_memory::allocate(5000);
    EXPECT_EQ(again, block);
    cuda::pinned_memory::deallocate(again);
    cudaStreamDestroy(stream);
    kernels::simulator::set_device_count(1);
}
#endif

class GpuStreams : public GpuTest {};

TEST_F(GpuStreams, AreOrderedByEvents) {
    const cuda::Stream first, second;
    Tensor x;
    cuda::Event ready(true), done(true);
    {
        const cuda::StreamGuard guard(first);
        EXPECT_EQ(cuda::current_stream(), first);
        x = full({100}, 2.0, {.device = kGpu});
        ready.record(first);
    }
    EXPECT_EQ(cuda::current_stream(), cuda::default_stream());
    ready.wait(second);
    Tensor y;
    {
        const cuda::StreamGuard guard(second);
        y = x * x;
        x.impl()->storage->record_stream(0);
        done.record(second);
        EXPECT_EQ(y.sum().item(), 400);
    }
    done.synchronize();
    EXPECT_TRUE(done.query());
    EXPECT_GE(ready.elapsed_time(done), 0);
    first.synchronize();
    EXPECT_TRUE(first.query());
}

class GpuDevices : public GpuTest {};

TEST_F(GpuDevices, AreParsedAndValidated) {
    EXPECT_EQ(Device::parse("cuda"), kGpu);
    EXPECT_EQ(Device::parse("cuda:0"), kGpu);
    expect_error<DeviceError>(
        {"device: the GPU does not exist", "'cuda:99'", "this process can use"},
        [] { Device::parse("cuda:99"); });
    expect_error<DeviceError>({"cuda:99: the device does not exist"},
                              [] { zeros({1}, {.device = Device::cuda(99)}); });
    EXPECT_FALSE(cuda::get_device_properties().name.empty());
    expect_error<DeviceError>({"cuda:7", "the device does not exist"},
                              [] { cuda::get_device_properties(7); });
}

TEST_F(GpuDevices, RejectOpsWithOperandsOnTwoDevices) {
    const Tensor here = ones({2}), there = ones({2}, {.device = kGpu});
    expect_error<DeviceError>({"add", "cpu", "cuda:0"}, [&] { add(here, there); });
}

TEST_F(GpuDevices, CopyTensorsInBothDirections) {
    Tensor x = randn({3, 5});
    for (const DType dtype : {f64, f32, f16, bf16, i64, i32, u8, boolean})
        expect_same_bits(to(to(to(x, dtype), kGpu), Device::cpu()), to(x, dtype));
    expect_same_bits(to(to(x.t(), kGpu), Device::cpu()), contiguous(x.t()));
    x.set_requires_grad();
    to(x, kGpu).sum().backward();
    EXPECT_TRUE(x.grad().device().is_cpu());
    EXPECT_EQ(x.grad().sum().item(), 15);
    EXPECT_EQ(arange(5, {i64, kGpu}).select(0, 3).item_int(), 3);
}

class GpuKernelErrors : public GpuTest {};

// Kernels cannot throw: the errors that they report are thrown when the program waits for them.
TEST_F(GpuKernelErrors, AreThrownAtTheNextWait) {
    const Tensor weight = ones({4, 2}, {.device = kGpu});
    const Tensor y = embedding(to(tensor(std::vector<std::int64_t>{1, 9}, {2}), kGpu), weight);
    expect_error<IndexError>({"embedding: index out of range: 9", "size 4"},
                             [&] { y.to_vector(); });
    EXPECT_EQ(y.sum().item(), 2);  // the error is thrown once, and the invalid index reads 0
    const Tensor logits = randn({3, 5}, {.device = kGpu});
    const Tensor loss =
        cross_entropy(logits, to(tensor(std::vector<std::int64_t>{1, 5, 2}, {3}), kGpu));
    expect_error<IndexError>({"cross_entropy: target out of range: 5 in row 1, with 5 classes"},
                             [&] { loss.item(); });
    const Tensor drawn = multinomial(zeros({2, 3}, {.device = kGpu}), 1);
    expect_error<ValueError>({"multinomial: all weights are zero: row"},
                             [&] { cuda::synchronize(); });
}

}  // namespace
}  // namespace axle::tests
