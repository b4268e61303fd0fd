// Tests worker threads, and several loaders together, mainly for the thread sanitizer.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "core/ops.h"
#include "data/loading/loader.h"
#include "tests/close.h"
#include "tests/data/samples.h"
#include "tests/wait.h"

namespace axle::data {
namespace {

using tests::Ids, tests::ids_of, tests::pass, tests::sample;

TensorDataset numbers(std::int64_t n) {
    return TensorDataset(Tree{{"x", arange(n).reshape({n, 1})}});
}

double sum_of_pass(DataLoader& loader) {
    double total = 0;
    for (auto& batch : loader) total += sum(batch["x"].tensor()).item();
    return total;
}

TEST(DataLoader, ThrowsDatasetErrorInEveryPass) {
    DataLoader loader(from_function(64,
                                    [](std::int64_t i) {
                                        if (i % 13 == 12) throw ValueError("bad");
                                        return sample(i);
                                    }),
                      {.batch_size = 1, .shuffle = true, .num_workers = 4});
    for (int i = 0; i < 1000; ++i) {
        loader.set_epoch(i);
        EXPECT_THROW(pass(loader), ValueError);
    }
}

TEST(WorkerInitFn, IsCalledOnceOnEveryWorkerBeforeItsBatches) {
    thread_local int worker_of_thread = -1;
    std::mutex mutex;
    std::multiset<int> started;
    std::atomic<int> uninitialized = 0;
    DataLoader loader(from_function(12,
                                    [&](std::int64_t i) {
                                        if (worker_of_thread < 0) ++uninitialized;
                                        return sample(i);
                                    }),
                      {.num_workers = 3, .worker_init_fn = [&](int worker) {
                           worker_of_thread = worker;
                           const std::lock_guard lock(mutex);
                           started.insert(worker);
                       }});
    // The loader is destroyed before the check, because a slow worker can start after the passes;
    // the destructor waits until each worker was initialized.
    for (int i = 0; i < 2; ++i) EXPECT_EQ(pass(loader).size(), 12U);
    { const DataLoader ended(std::move(loader)); }
    EXPECT_EQ(started, (std::multiset<int>{0, 1, 2}));
    EXPECT_EQ(uninitialized, 0);
}

TEST(LoaderWorkers, AreReusedInLaterPassesIfPersistent) {
    for (const bool persistent : {false, true}) {
        std::atomic<int> started = 0;
        thread_local int passes_of_thread = 0;
        std::atomic<int> most_passes = 0;
        DataLoader loader(from_function(1,
                                        [&](std::int64_t i) {
                                            most_passes =
                                                std::max<int>(most_passes, ++passes_of_thread);
                                            return sample(i);
                                        }),
                          {.num_workers = 1,
                           .worker_init_fn = [&](int) { ++started; },
                           .persistent_workers = persistent});
        for (int i = 0; i < 3; ++i) EXPECT_EQ(pass(loader).size(), 1U);
        EXPECT_EQ(started, persistent ? 1 : 3);
        EXPECT_EQ(most_passes, persistent ? 3 : 1);
    }
}

TEST(LoaderWorkers, CallWorkerInitFnAgainAfterItThrewIfNotPersistent) {
    std::atomic<int> calls = 0;
    DataLoader loader(from_function(2, sample), {.num_workers = 1,
                                                 .worker_init_fn =
                                                     [&](int) {
                                                         if (++calls == 1)
                                                             throw FileError("not mounted yet");
                                                     },
                                                 .persistent_workers = false});
    EXPECT_THROW(pass(loader), FileError);
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(pass(loader).size(), 2U);
    EXPECT_EQ(calls, 2);
}

TEST(LoaderTimeout, EndsTheLoopWhileAWorkerWaits) {
    for (const bool persistent : {true, false}) {
        std::promise<void> release;
        const std::shared_future<void> released = release.get_future().share();
        DataLoader loader(from_function(4,
                                        [&](std::int64_t i) {
                                            released.wait();
                                            return sample(i);
                                        }),
                          {.num_workers = 1, .timeout = 0.01, .persistent_workers = persistent});
        const char* const message =
            "DataLoader: timed out: no worker has finished batch 0 of this pass after 0.01 seconds";
        tests::expect_error<Error>({message}, [&] { pass(loader); });
        EXPECT_EQ(loader.epoch(), 0);
        release.set_value();
        // A later pass waits for the worker and reads all batches, unless the machine is slow and
        // the pass times out, too.
        EXPECT_TRUE(tests::comes_true([&] {
            try {
                return pass(loader).size() == 4;
            } catch (const Error&) {
                return false;
            }
        }));
    }
}

TEST(LoaderTimeout, LetsTheDestructorWaitForTheDataset) {
    std::promise<void> release;
    const std::shared_future<void> released = release.get_future().share();
    std::atomic<bool> returned = false;
    std::thread releasing;
    {
        DataLoader loader(from_function(1,
                                        [&](std::int64_t i) {
                                            released.wait();
                                            returned = true;
                                            return sample(i);
                                        }),
                          {.num_workers = 1, .timeout = 0.01});
        EXPECT_THROW(pass(loader), Error);
        releasing = std::thread([&] { release.set_value(); });
    }
    EXPECT_TRUE(returned);
    releasing.join();
}

TEST(LoaderTimeout, AcceptsVeryLargeAndInfiniteTimes) {
    for (const double timeout : {60.0, 1e300, std::numeric_limits<double>::infinity()}) {
        DataLoader loader(from_function(40, sample), {.num_workers = 2, .timeout = timeout});
        EXPECT_EQ(pass(loader).size(), 40U);
    }
}

TEST(LoaderOptions, RejectNegativeTimeoutsAndTimeoutsOrPersistentWorkersWithoutWorkers) {
    const auto refused = [](const char* message, const LoaderOptions& options) {
        tests::expect_error<ValueError>({"DataLoader: ", message}, [&] {
            DataLoader loader(from_function(4, sample), options);
        });
    };
    refused("timeout must be at least 0: -1", {.num_workers = 1, .timeout = -1});
    refused("timeout must be at least 0: nan",
            {.num_workers = 1, .timeout = std::numeric_limits<double>::quiet_NaN()});
    refused("timeout needs num_workers above 0: timeout is 5", {.timeout = 5});
    refused("persistent_workers needs num_workers above 0", {.persistent_workers = true});
}

TEST(WorkerInitFn, HasItsExceptionRethrownInSeveralLoops) {
    DataLoader loader(from_function(4, sample),
                      {.num_workers = 2, .worker_init_fn = [](int worker) {
                           if (worker == 1) throw FileError("no shared memory");
                       }});
    for (int i = 0; i < 2; ++i) {
        try {
            while (true) pass(loader);  // a pass can end before the worker starts
        } catch (const FileError& error) {
            EXPECT_STREQ(error.what(), "DataLoader: worker_init_fn: worker 1: no shared memory");
        }
    }
}

TEST(DataLoader, StartsWorkersOnceAndBlocksSigtermInThem) {
    const auto threads = [] {
        std::set<std::string> ids;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
            ids.insert(entry.path().filename());
        return ids;
    };
    std::atomic<int> open_to_signals = 0;
    DataLoader loader(from_function(8,
                                    [&](std::int64_t i) {
                                        sigset_t mask;
                                        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
                                        if (sigismember(&mask, SIGTERM) == 0) ++open_to_signals;
                                        return sample(i);
                                    }),
                      {.num_workers = 3});
    std::thread([] {}).join();  // sanitizers start their own thread when the first thread starts
    const std::size_t before = threads().size();
    pass(loader);
    const auto running = threads();
    EXPECT_EQ(running.size(), before + 3);
    for (int epoch = 0; epoch < 5; ++epoch) {
        pass(loader);
        EXPECT_EQ(threads(), running);
    }
    EXPECT_EQ(open_to_signals, 0);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    EXPECT_EQ(sigismember(&mask, SIGTERM), 0);
}

TEST(DataLoader, LimitsPrefetchingAndStopsItAfterPass) {
    std::atomic<int> made = 0;
    DataLoader loader(from_function(100,
                                    [&](std::int64_t i) {
                                        ++made;
                                        return sample(i);
                                    }),
                      {.num_workers = 2, .prefetch_factor = 3});
    // Returns whether all other threads, including the workers, wait.
    const auto workers_wait = [] {
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
            const auto thread = static_cast<pid_t>(std::stol(entry.path().filename()));
            if (thread != ::gettid() && !tests::is_blocked(thread)) return false;
        }
        return true;
    };
    int seen = 0;
    for ([[maybe_unused]] auto& batch : loader) {
        ++seen;
        EXPECT_TRUE(tests::comes_true(workers_wait));
        EXPECT_LE(made, seen + 6);
        if (seen == 20) break;
    }
    const int after = made;
    EXPECT_TRUE(tests::comes_true(workers_wait));
    EXPECT_EQ(made, after);
}

TEST(DataLoader, KeepsOrderOfBatchesUnderContention) {
    DataLoader loader(from_function(40, sample), {.num_workers = 4, .prefetch_factor = 1});
    for (int repeat = 0; repeat < 200; ++repeat) {
        std::int64_t expected = 0;
        for (auto& batch : loader) {
            ASSERT_EQ(ids_of(batch), Ids{expected});
            if (++expected == repeat % 41) break;
        }
    }
}

TEST(DataLoader, CanShareDatasetWithAnotherLoader) {
    const TensorDataset dataset = numbers(60);
    DataLoader a(dataset, {.batch_size = 3, .shuffle = true, .num_workers = 2, .seed = 1});
    DataLoader b(dataset, {.batch_size = 3, .shuffle = true, .num_workers = 3, .seed = 2});
    for (int epoch = 0; epoch < 5; ++epoch) {
        double sums[2] = {0, 0};
        auto other = b.begin();
        for (auto& batch : a) {
            sums[0] += sum(batch["x"].tensor()).item();
            sums[1] += sum((*other)["x"].tensor()).item();
            ++other;
        }
        EXPECT_EQ(sums[0], 1770);
        EXPECT_EQ(sums[1], 1770);
    }
}

TEST(DataLoader, AllowsConcurrentPassesOfSeveralLoaders) {
    const TensorDataset dataset = numbers(60);
    std::vector<std::thread> loops;
    loops.reserve(4);
    for (std::uint64_t seed = 0; seed < 4; ++seed)
        loops.emplace_back([&dataset, seed] {
            DataLoader loader(dataset,
                              {.batch_size = 4, .shuffle = true, .num_workers = 2, .seed = seed});
            for (int epoch = 0; epoch < 5; ++epoch) EXPECT_EQ(sum_of_pass(loader), 1770);
        });
    for (std::thread& loop : loops) loop.join();
}

TEST(DataLoader, KeepsBatchesValidAfterPass) {
    DataLoader loader(numbers(60), {.batch_size = 4, .num_workers = 2});
    std::vector<Tensor> kept;
    for (auto& batch : loader) kept.push_back(batch["x"]);
    for (std::size_t i = 0; i < kept.size(); ++i)
        EXPECT_EQ(kept[i].to_vector()[0], static_cast<double>(4 * i));
}

TEST(DataLoader, CanRunInsideDatasetOfAnotherLoader) {
    const TensorDataset inner = numbers(8);
    DataLoader outer(
        from_function(
            6,
            [&](std::int64_t i) {
                DataLoader loader(inner, {.batch_size = 3, .num_workers = 2});
                return Tree{{"x", full({1}, sum_of_pass(loader) * static_cast<double>(i))}};
            }),
        {.batch_size = 2, .num_workers = 2});
    EXPECT_EQ(sum_of_pass(outer), 28 * 15);
}

}  // namespace
}  // namespace axle::data
