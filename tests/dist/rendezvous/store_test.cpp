#include <atomic>

#include <unistd.h>

#include "dist/rendezvous/wire.h"
#include "gmock/gmock.h"
#include "tests/dist/job.h"
#include "tests/wait.h"

namespace axle::tests {
namespace {

using dist::Control;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Each;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(KeyValueStore, SharesAValueWithAllRanks) {
    const auto errors = run_job(ControlJob(3), [](Control& control) {
        if (control.rank() == 1) control.set("key", "a value");
        EXPECT_EQ(control.get("key", seconds(20)), "a value");
    });
    EXPECT_THAT(errors, Each(""));
}

TEST(KeyValueStore, WaitsUntilAKeyIsSet) {
    std::atomic<bool> set = false;
    std::atomic<pid_t> waiting = 0;  // the thread of rank 0
    const auto errors = run_job(ControlJob(2), [&](Control& control) {
        if (control.rank() == 0) {
            waiting = ::gettid();
            EXPECT_EQ(control.get("late", seconds(20)), "here");
            EXPECT_TRUE(set);
        } else {
            EXPECT_TRUE(comes_true([&] { return waiting != 0 && is_blocked(waiting); }));
            set = true;
            control.set("late", "here");
        }
    });
    EXPECT_THAT(errors, Each(""));
}

TEST(KeyValueStore, ReportsAKeyThatIsNotSetAfterTheTimeout) {
    const auto errors = run_job(ControlJob(2), [](Control& control) {
        EXPECT_THAT([&] { control.get("nowhere", milliseconds(50)); },
                    ThrowsMessage<CommError>(HasSubstr("key 'nowhere' was not set within 0.05 s")));
        // The request that has timed out gets no late reply, and the connection stays usable.
        control.add("gave up", 1);
        while (control.add("gave up", 0) != 2) std::this_thread::yield();
        control.set("nowhere", "here");
        EXPECT_EQ(control.get("nowhere", seconds(20)), "here");
    });
    EXPECT_THAT(errors, Each(""));
}

TEST(KeyValueStore, AddsAtomically) {
    const auto errors = run_job(ControlJob(4), [](Control& control) {
        for (int i = 0; i < 250; ++i) control.add("count", 1);
        control.add("ready", 1);
        while (control.add("ready", 0) != 4) std::this_thread::yield();
        EXPECT_EQ(control.add("count", 0), 1000);
        EXPECT_EQ(control.add(str("own ", control.rank()), -7), -7);
    });
    EXPECT_THAT(errors, Each(""));
}

TEST(KeyValueStore, RejectsAddToTextAndInt64Overflow) {
    const auto errors = run_job(ControlJob(1), [](Control& control) {
        control.set("text", "seven");
        EXPECT_THAT([&] { control.add("text", 1); },
                    ThrowsMessage<CommError>(HasSubstr("'text' is not a number")));
        control.add("big", INT64_MAX);
        EXPECT_THAT([&] { control.add("big", 1); },
                    ThrowsMessage<CommError>(HasSubstr("overflows int64")));
        EXPECT_EQ(control.get("text", seconds(20)), "seven");
    });
    EXPECT_THAT(errors, Each(""));
}

TEST(KeyValueStore, StoresBinaryKeysAndValuesUpToItsLimitsAndRejectsLongerKeysAndValues) {
    const auto errors = run_job(ControlJob(2), [](Control& control) {
        const std::string key(dist::kMaxKey, '\0'), value(dist::kMaxValue, '\xff');
        if (control.rank() == 0) control.set(key, value);
        EXPECT_EQ(control.get(key, seconds(20)), value);
        EXPECT_THROW(control.set(key + 'x', ""), ValueError);
        EXPECT_THROW(control.set("key", value + 'x'), ValueError);
        EXPECT_THROW(control.get(key + 'x', seconds(1)), ValueError);
        EXPECT_THROW(control.add(key + 'x', 1), ValueError);
        control.set("empty", "");
        EXPECT_EQ(control.get("empty", seconds(20)), "");
    });
    EXPECT_THAT(errors, Each(""));
}

TEST(KeyValueStore, AllowsConcurrentCallsOfSeveralThreads) {
    const auto errors = run_job(ControlJob(2), [](Control& control) {
        const auto failures = run_threads(4, [&](int thread) {
            for (int i = 0; i < 100; ++i) {
                const std::string key = str(control.rank(), ' ', thread, ' ', i);
                control.set(key, key);
                EXPECT_EQ(control.get(key, seconds(20)), key);
            }
        });
        EXPECT_THAT(failures, Each(""));
    });
    EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace axle::tests
