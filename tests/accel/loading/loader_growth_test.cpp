// Tests that a pass can be resumed from a checkpoint after the dataset has grown. The runs may have
// different numbers of processes.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/accel/loading/loaders.h"
#include "tests/job.h"
#include "tests/log_capture.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using namespace std::chrono_literals;
using tests::Job;
using tests::Rows;
using tests::TemporaryFolder;
using Group = std::shared_ptr<dist::ProcessGroup>;

constexpr std::int64_t kTotal = 4;
constexpr std::uint64_t kSeed = 7;

struct Kind {
    const char* name;
    bool shuffles;
    accel::DataLoaderConfiguration config;
};
const Kind kKinds[] = {
    {"Sequential", false, {}},
    {"Shuffled", true, {}},
    {"Split", true, {.split_batches = true}},
    {"Dispatched", true, {.dispatch_batches = true}},
    {"SplitAndDispatched", false, {.split_batches = true, .dispatch_batches = true}}};

// A run that loads the checkpoint of the previous run, if any, and reads steps of epoch 0. Saves a
// checkpoint in its last step, unless it reads the pass to its end.
struct Run {
    int processes;
    std::int64_t samples, steps;  // 0 steps: up to the end of the pass
};

Rows order_of(const Kind& kind, std::int64_t samples) {
    return kind.shuffles ? data::RandomSampler(samples, {.seed = kSeed}).indices()
                         : tests::range(0, samples);
}

// Returns the samples that a run reads, and adds them to `read`. At the call, `read` contains the
// samples of all previous runs.
Rows expected_rows(const Kind& kind, const Run& run, Rows& read) {
    Rows rows;
    for (const std::int64_t index : order_of(kind, run.samples)) {
        if (run.steps > 0 && std::ssize(rows) == run.steps * kTotal) break;
        if (std::find(read.begin(), read.end(), index) == read.end()) rows.push_back(index);
    }
    read.insert(read.end(), rows.begin(), rows.end());
    return rows;
}

// Runs the program of one process. Returns the rows of all processes and the number of warnings
// about a grown dataset on this process.
std::string text_of_run(const Kind& kind, const Run& run, const std::string& from,
                        const std::string& to, const Group& group) {
    tests::LogCapture log;
    Accelerator accelerator(tests::of_group(group, kind.config));
    const std::int64_t batch = kind.config.split_batches ? kTotal : kTotal / group->size();
    data::LoaderOptions options{.batch_size = batch, .shuffle = kind.shuffles, .num_workers = 1};
    options.seed = kSeed;
    data::DataLoader loader(tests::numbers(run.samples), options);
    accelerator.prepare(loader);
    if (!from.empty()) accelerator.load_state(from);
    Rows rows;
    std::int64_t steps = 0;
    for (auto& each : loader) {
        for (const std::int64_t row : tests::rows_of(accelerator.gather_for_metrics(each)))
            rows.push_back(row);
        if (++steps == run.steps) accelerator.save_state(to);
        if (steps == run.steps) break;
    }
    std::int64_t warnings = 0;
    for (const std::string& line : log.lines())
        if (line.find("the dataset has grown from") != std::string::npos) ++warnings;
    return str(testing::PrintToString(rows), ", ", warnings, " warnings");
}

void expect_exact(const Kind& kind, const std::vector<Run>& runs) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    Rows read;
    std::string from;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const std::string to = folder / str(kind.name, i);
        Job job(runs[i].processes, [&](const dist::Environment& environment) -> std::string {
            return text_of_run(kind, runs[i], from, to,
                               dist::ProcessGroup::create(environment, {.join_timeout = 30s}));
        });
        const bool grew = i > 0 && runs[i].samples > runs[i - 1].samples;
        const std::string expected = testing::PrintToString(expected_rows(kind, runs[i], read));
        const std::vector<tests::RankOutcome> ranks = job.wait(60s);
        for (std::size_t rank = 0; rank < ranks.size(); ++rank)
            EXPECT_EQ(ranks[rank].text, str(expected, ", ", grew && rank == 0 ? 1 : 0, " warnings"))
                << kind.name << ", run " << i << ", rank " << rank;
        from = to;
    }
    std::sort(read.begin(), read.end());
    EXPECT_EQ(read, tests::range(0, runs.back().samples)) << kind.name;
}

TEST(GrownDataset, IsReadOnceWhenAPassIsResumedWithMoreProcesses) {
    for (const Kind& kind : kKinds) expect_exact(kind, {{1, 9, 1}, {2, 14, 1}, {4, 19, 0}});
}

TEST(GrownDataset, IsReadOnceWhenAPassIsResumedWithFewerProcesses) {
    for (const Kind& kind : kKinds)
        expect_exact(kind, {{4, 9, 1}, {2, 14, 1}, {2, 14, 1}, {1, 15, 0}});
}

}  // namespace
}  // namespace axle
