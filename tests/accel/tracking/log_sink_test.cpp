// Tests log() with and without a log sink, and sinks that are replaced while threads log.
#include <atomic>
#include <thread>

#include "core/system/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/accel/tracking/recorder.h"

namespace axle {
namespace {

using testing::ElementsAre;
using tests::Messages;

TEST(Log, CallsTheSinkOrWritesWarningsAndErrorsToStderrWithoutASink) {
    {
        Messages messages;
        log(LogLevel::warning, "one ", 1);
        log(LogLevel::info, "not taken by this one");
        EXPECT_THAT(messages.take(), ElementsAre("one 1"));
    }
    testing::internal::CaptureStderr();
    log(LogLevel::debug, "quiet");
    log(LogLevel::info, "quiet");
    log(LogLevel::warning, "careful");
    log(LogLevel::error, "broken");
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "axle: warning: careful\naxle: error: broken\n");
}

TEST(LogSink, MayCallLogOrReplaceItselfOrThrow) {
    set_log_sink([](LogLevel, std::string_view) { throw 1; });
    log(LogLevel::error, "x");
    int calls = 0;
    set_log_sink([&](LogLevel level, std::string_view) {
        ++calls;
        set_log_sink([&](LogLevel, std::string_view) { calls += 10; });
        log(level, "again");
    });
    log(LogLevel::error, "x");
    EXPECT_EQ(calls, 11);
    set_log_sink({});
}

TEST(LogSink, CanBeReplacedWhileThreadsLog) {
    std::atomic<int> calls = 0;
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 200; ++i) {
                set_log_sink([&](LogLevel, std::string_view) { ++calls; });
                log(LogLevel::error, "x");
            }
        });
    for (std::thread& thread : threads) thread.join();
    set_log_sink({});
    EXPECT_EQ(calls, 800);
}

}  // namespace
}  // namespace axle
