// Freezes ranks, and runs a job on overloaded cores, where no rank may be reported as frozen.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/ops.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/dist/launch/child.h"
#include "tests/figures.h"
#include "tests/reporting_job.h"

namespace axle::tests {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kSize = 4;

// Reduces until an error occurs. Reports Event::loaded after the first reduction, and
// Event::finished with 1 if the error names the rank `frozen`, else with 0.
void reduce_until_error(int frozen, const ReportingJob::Group& group,
                        const ReportingJob::Reporter& report) {
    Tensor x = ones({1000});
    group->all_reduce(x);
    report(Event::loaded, 0);
    try {
        for (;;) group->all_reduce(x, dist::ReduceOp::mean);
    } catch (const CommError& error) {
        const std::string text = error.what();
        report(Event::finished, text.find(str("rank ", frozen, " ")) != std::string::npos);
    }
}

// Stops each rank `trials` times. The other ranks must name the stopped rank within 10 seconds.
void expect_the_right_rank(int trials) {
    double longest = 0;
    int named = 0, expected = 0;
    for (int trial = 0; trial < trials; ++trial) {
        for (int frozen = 0; frozen < kSize; ++frozen) {
            SCOPED_TRACE(str("rank ", frozen));
            ReportingJob job(kSize, [&](const auto& group, const auto& report) {
                reduce_until_error(frozen, group, report);
            });
            for (int rank = 0; rank < kSize; ++rank) ASSERT_TRUE(job.next().has_value());
            job.signal(frozen, SIGSTOP);
            const auto start = Clock::now();
            for (int rank = 0; rank < kSize - 1; ++rank, ++expected) {
                const auto report = job.next();
                ASSERT_TRUE(report.has_value()) << "a rank reported nothing";
                EXPECT_EQ(report->value, 1) << "a rank named another rank";
                named += report->value == 1;
            }
            longest =
                std::max(longest, std::chrono::duration<double>(Clock::now() - start).count());
        }
    }
    EXPECT_LT(longest, 10);
    record_figure("frozen_ranks", {{"processes", kSize},
                                   {"freezes", trials * kSize},
                                   {"errors", expected},
                                   {"errors_that_name_the_frozen_rank", named},
                                   {"longest_seconds", longest}});
}

TEST(FrozenRank, IsReportedByTheOtherRanksInALongRun) { expect_the_right_rank(5); }

// Returns the resident memory of this process in KiB.
std::int64_t resident_kib() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6));
    return 0;
}

std::int64_t entries_of(const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), {});
}

std::chrono::minutes soak_time() {
    const char* const minutes = std::getenv("AXLE_SOAK_MINUTES");
    return std::chrono::minutes(minutes == nullptr ? 1 : std::stoi(minutes));
}

// Reduces repeatedly for a given time. Reports Event::loaded after a warmup. At the end, reports
// Event::finished with the growth of resident memory since the warmup in KiB, or throws if memory
// has grown by more than 1 MiB or the number of open files or threads has grown.
void reduce_for(std::chrono::minutes time, const ReportingJob::Group& group,
                const ReportingJob::Reporter& report) {
    Tensor x = ones({10'000});
    std::int64_t memory = 0, files = 0, threads = 0;
    const auto start = Clock::now();
    Tensor over = zeros({1});
    for (std::int64_t i = 0; over.item() == 0; ++i) {
        group->all_reduce(x, dist::ReduceOp::mean);
        if (i == 1000) {
            memory = resident_kib();
            files = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
            report(Event::loaded, group->rank());
        }
        // All ranks end after the same call.
        over.fill_(Clock::now() - start > time && i > 1000 ? 1 : 0);
        group->broadcast(over, 0);
    }
    const std::int64_t grown = resident_kib() - memory;
    const bool constant = grown <= 1024 && entries_of("/proc/self/fd") <= files &&
                          entries_of("/proc/self/task") <= threads;
    if (!constant)
        throw std::runtime_error(str("memory grew by ", grown, " KiB, or files or threads grew"));
    report(Event::finished, grown);
}

// Runs a job while four other processes per core are busy.
TEST(OverloadedJob, ReportsNoFrozenRankInALongRun) {
    std::vector<std::unique_ptr<Child>> busy;
    for (unsigned i = 0; i < 4 * std::thread::hardware_concurrency(); ++i)
        busy.push_back(std::make_unique<Child>([] {
            for (std::atomic<unsigned> n = 0;; ++n) {
            }
        }));
    const auto time = soak_time();
    ReportingJob job(
        kSize, [&](const auto& group, const auto& report) { reduce_for(time, group, report); });
    for (int rank = 0; rank < kSize; ++rank) ASSERT_TRUE(job.next(seconds(300)).has_value());
    std::int64_t most = 0;
    for (int rank = 0; rank < kSize; ++rank) {
        const auto report = job.next(time + seconds(300));
        ASSERT_TRUE(report.has_value()) << "a rank has failed";
        most = std::max(most, report->value);
    }
    EXPECT_TRUE(job.wait(seconds(60)));
    for (int rank = 0; rank < kSize; ++rank) EXPECT_EQ(job.status(rank), 0);
    record_figure("soak", {{"minutes", time.count()},
                           {"processes", kSize},
                           {"other_busy_processes", busy.size()},
                           {"cores", std::thread::hardware_concurrency()},
                           {"false_alarms", 0},
                           {"most_growth_of_memory_kib", most}});
}

}  // namespace
}  // namespace axle::tests
