#include "kernels/thread_pool.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>

#include "kernels/error.h"

namespace axle::kernels {
namespace {

class ThreadPool : public testing::TestWithParam<int> {
  protected:
    void SetUp() override { set_num_threads(GetParam()); }
    void TearDown() override { set_num_threads(2); }
};

TEST_P(ThreadPool, RunsEveryTaskOnce) {
    for (int round = 0; round < 200; ++round) {
        std::vector<std::atomic<int>> seen(97);
        parallel(97, [&](std::int64_t task) { ++seen[static_cast<std::size_t>(task)]; });
        for (const auto& count : seen) ASSERT_EQ(count, 1);
    }
}

TEST_P(ThreadPool, CoversRangesOnceInPartsOfLimitedSize) {
    std::vector<std::atomic<int>> seen(1003);
    parallel_ranges(1003, 64, [&](std::int64_t begin, std::int64_t end) {
        ASSERT_LE(end - begin, 64);
        for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    for (const auto& count : seen) ASSERT_EQ(count, 1);
}

TEST_P(ThreadPool, RethrowsExceptionsAndStaysUsable) {
    EXPECT_THROW(parallel(16,
                          [](std::int64_t task) {
                              if (task == 5) throw ValueError("task 5");
                          }),
                 ValueError);
    std::atomic<int> ran = 0;
    parallel(16, [&](std::int64_t) { ++ran; });
    EXPECT_EQ(ran, 16);
}

TEST_P(ThreadPool, RunsNestedAndConcurrentSections) {
    std::atomic<int> ran = 0;
    const auto work = [&] {
        for (int i = 0; i < 50; ++i)
            parallel(4, [&](std::int64_t) { parallel(3, [&](std::int64_t) { ++ran; }); });
    };
    std::thread other(work);
    work();
    other.join();
    EXPECT_EQ(ran, 2 * 50 * 12);
}

TEST_P(ThreadPool, BlocksSigintInWorkersOnly) {
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, nullptr, &before);
    set_num_threads(GetParam() + 1);
    const auto caller = std::this_thread::get_id();
    std::atomic<int> unblocked = 0;
    parallel(64, [&](std::int64_t) {
        if (std::this_thread::get_id() == caller) return;
        sigset_t mask;
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        unblocked += sigismember(&mask, SIGINT) == 0;
    });
    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    EXPECT_EQ(unblocked, 0);
    EXPECT_EQ(sigismember(&before, SIGINT), sigismember(&after, SIGINT));
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPool, testing::Values(1, 2, 3, 5));

TEST(SetNumThreads, RejectsInvalidNumbers) {
    EXPECT_THROW(set_num_threads(0), ValueError);
    EXPECT_THROW(set_num_threads(5000), ValueError);
}

}  // namespace
}  // namespace axle::kernels
