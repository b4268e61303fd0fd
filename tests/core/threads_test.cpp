// Tests concurrent use of the library, mainly for the thread sanitizer.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/memory/memory.h"
#include "core/ops.h"

namespace axle {
namespace {

constexpr int kThreads = 8;

template <class F>
void on_threads(F&& f) {
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t) threads.emplace_back(f, t);
    for (std::thread& thread : threads) thread.join();
}

TEST(HostMemory, NeverReusesBlockInUseOnAnotherThread) {
    const MemoryStats before = host_memory::stats();
    std::atomic<int> overwritten = 0;
    on_threads([&](int t) {
        for (std::size_t i = 0; i < 300; ++i) {
            const std::size_t size = 1 + i * 37 % 5000;
            auto* block = static_cast<unsigned char*>(host_memory::allocate(size));
            std::memset(block, t, size);
            if (i % 100 == 99) host_memory::empty_cache();
            std::this_thread::yield();
            for (std::size_t k = 0; k < size; ++k)
                if (block[k] != t) ++overwritten;
            host_memory::deallocate(block, size);
        }
    });
    const MemoryStats after = host_memory::stats();
    EXPECT_EQ(overwritten, 0);
    EXPECT_EQ(after.current, before.current);
    EXPECT_GE(after.allocations, before.allocations + kThreads * 300);
}

TEST(HostMemory, AllowsFreeingOnAnotherThread) {
    const MemoryStats before = host_memory::stats();
    {
        std::vector<Tensor> made(kThreads);
        on_threads([&](int t) { made[static_cast<std::size_t>(t)] = full({100}, t, {f32}); });
        on_threads([&](int t) {
            Tensor other = std::move(made[static_cast<std::size_t>((t + 1) % kThreads)]);
            EXPECT_EQ(sum(other).item(), 100 * ((t + 1) % kThreads));
        });
    }
    EXPECT_EQ(host_memory::stats().current, before.current);
}

TEST(HostMemory, KeepsStatisticsConsistentAcrossThreads) {
    on_threads([](int t) {
        for (int i = 0; i < 200; ++i) {
            const MemoryStats stats = host_memory::stats();
            EXPECT_LE(stats.current, stats.reserved);
            EXPECT_LE(stats.current, stats.peak);
            EXPECT_LE(stats.system_allocations, stats.allocations);
            if (t == 0 && i % 50 == 0) host_memory::reset_peak();
            const Tensor x = ones({1 + i % 7});
        }
    });
}

TEST(Tensor, AllowsConcurrentReads) {
    const Tensor x = arange(1000), w = ones({1000});
    const Tensor view = x.reshape({10, 100}).transpose(0, 1);
    on_threads([&](int) {
        for (int i = 0; i < 20; ++i) {
            const std::vector<Tensor> mine(2, x);
            EXPECT_EQ(sum(mine[1] * w).item(), 499500);
            EXPECT_EQ(sum(view).item(), 499500);
        }
    });
}

TEST(Autocast, AllowsConcurrentCastsOfALeaf) {
    const Tensor w = ones({1000}, {.requires_grad = true});
    on_threads([&](int t) {
        const NoGrad no_grad;
        for (int i = 0; i < 50; ++i) {
            // Threads with different dtypes compete for the single cached cast.
            const AutocastGuard guard((t + i / 10) % 2 == 0 ? bf16 : f16);
            EXPECT_EQ(sum(autocast_to_f32(autocast(w))).item(), 1000);
        }
    });
}

TEST(Autograd, AllowsConcurrentBackwardOfIndependentGraphs) {
    const Tensor x = arange(50);
    on_threads([&](int t) {
        for (int i = 0; i < 20; ++i) {
            Tensor w = full({50}, t, {f32});
            w.set_requires_grad(true);
            sum(w * w * x).backward();
            EXPECT_EQ(sum(w.grad()).item(), 2 * t * 1225);
        }
    });
}

}  // namespace
}  // namespace axle
