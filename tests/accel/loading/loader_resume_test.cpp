// Saves a checkpoint after every batch of a run, and resumes from each of them: with the same
// number of processes, with fewer and with more. A resumed run must read the same samples as the
// rest of the first run.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/system/log.h"
#include "tests/accel/loading/loaders.h"
#include "tests/job.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using namespace std::chrono_literals;
using tests::Job;
using tests::Rows;
using tests::TemporaryFolder;
using Log = std::vector<Rows>;  // the rows of all processes, one element per step
using Group = std::shared_ptr<dist::ProcessGroup>;

constexpr std::int64_t kSamples = 10, kTotal = 4, kEpochs = 3, kSteps = 3 * kEpochs;
constexpr std::uint64_t kSeed = 7;

struct Kind {
    const char* name;
    bool iterable, shuffles;
    accel::DataLoaderConfiguration config;
};
const Kind kKinds[] = {{"Shuffled", false, true, {}},
                       {"Sequential", false, false, {}},
                       {"Split", false, true, {.split_batches = true}},
                       {"Iterable", true, false, {.dispatch_batches = false}},
                       {"Dispatched", false, true, {.dispatch_batches = true}},
                       {"DispatchedIterable", true, false, {}}};

// Returns a stream whose samples depend on the epoch.
data::GeneratorDataset stream() {
    return data::from_generator([](std::int64_t epoch) {
        return [epoch, i = std::int64_t{0}]() mutable -> std::optional<Tree> {
            if (i == kSamples) return std::nullopt;
            return Tree(100 * epoch + i++);
        };
    });
}

// Returns the samples that a loader of this kind must yield in all epochs, beginning with step
// `first`.
Log expected_from(const Kind& kind, std::int64_t first) {
    const data::RandomSampler sampler(kSamples, {.seed = kSeed});
    Log log;
    for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
        const std::int64_t begin = kind.iterable ? 100 * epoch : 0;
        const Rows order =
            kind.shuffles ? sampler.indices(epoch) : tests::range(begin, begin + kSamples);
        for (std::int64_t at = 0; at < kSamples; at += kTotal)
            log.emplace_back(order.begin() + at, order.begin() + std::min(at + kTotal, kSamples));
    }
    log.erase(log.begin(), log.begin() + first);
    return log;
}

// The training program of one process.
struct Program {
    Program(const Kind& kind, int workers, const Group& group)
        : accelerator({.cpu = true, .dataloader_config = kind.config, .process_group = group}) {
        const std::int64_t batch = kind.config.split_batches ? kTotal : kTotal / group->size();
        data::LoaderOptions options{.batch_size = batch, .num_workers = workers};
        if (kind.shuffles) {
            options.shuffle = true;
            options.seed = kSeed;
        }
        if (kind.iterable)
            loader = std::make_unique<data::DataLoader>(stream(), options);
        else
            loader = std::make_unique<data::DataLoader>(tests::numbers(kSamples), options);
        accelerator.prepare(*loader);
    }
    // Runs the program until kEpochs epochs are complete. Saves a checkpoint after each batch
    // unless `into` is empty.
    Log run(const std::string& into = {}, std::int64_t step = 0) {
        Log log;
        while (loader->epoch() < kEpochs)
            for (auto& batch : *loader) {
                log.push_back(tests::rows_of(accelerator.gather_for_metrics(batch)));
                if (!into.empty()) accelerator.save_state(str(into, '/', step));
                ++step;
            }
        return log;
    }

    Accelerator accelerator;
    std::unique_ptr<data::DataLoader> loader;
};

std::string difference(const Log& log, const Log& expected, const std::string& what) {
    return log == expected ? "" : str(what, ": ", testing::PrintToString(log), "; ");
}

// Resumes from every checkpoint in the folder `from`, beginning with checkpoint `first`. Returns
// the differences from the expected results, or "" if there are none. The program that resumes from
// checkpoint `first` saves further checkpoints in the folder `into`, unless `into` is empty.
std::string resume_everywhere(const Kind& kind, int workers, const Group& group,
                              const std::string& from, std::int64_t first = 0,
                              const std::string& into = {}) {
    std::string wrong;
    for (std::int64_t step = first; step < kSteps; ++step) {
        Program program(kind, workers, group);
        program.accelerator.load_state(str(from, '/', step));
        const Log log = program.run(step == first ? into : "", step + 1);
        wrong += difference(log, expected_from(kind, step + 1),
                            str(kind.name, ", ", workers, " workers, ", group->size(),
                                " processes, after step ", step));
    }
    return wrong;
}

// Runs f(group) in several processes and expects that it returns an empty string.
template <class F>
void expect_right(int processes, F&& f) {
    Job job(processes, [&](const dist::Environment& environment) -> std::string {
        set_log_sink([](LogLevel, std::string_view) {});  // hides the warning about fewer processes
        return f(dist::ProcessGroup::create(environment, {.join_timeout = 30s}));
    });
    for (const tests::RankOutcome& rank : job.wait(90s)) EXPECT_EQ(rank.text, "");
}

class ResumedLoader : public testing::TestWithParam<int> {};

// Covers 4.use_stateful_dataloader, 10.dl_state_dict.bin, 10.sampler.bin.
TEST_P(ResumedLoader, ContinuesWithTheNextSamplesAfterEveryBatch) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    expect_right(GetParam(), [&](const Group& group) {
        std::string wrong;
        for (const Kind& kind : kKinds)
            for (const int workers : {0, 1, 4}) {
                const std::string into = str(folder.path(), '/', kind.name, workers);
                wrong += difference(Program(kind, workers, group).run(into), expected_from(kind, 0),
                                    kind.name);
                wrong += resume_everywhere(kind, workers, group, into);
            }
        return wrong;
    });
}

INSTANTIATE_TEST_SUITE_P(Processes, ResumedLoader, testing::Values(1, 2, 4),
                         testing::PrintToStringParamName());

// Covers 10.dl_state_dict.bin, 10.sampler.bin, 30.1, 30.13.
TEST(ResumedLoaders, ContinueWithTheNextSamplesOnFewerProcesses) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    const auto saved_by = [&](const Kind& kind, int processes) {
        return str(folder.path(), '/', kind.name, processes);
    };
    expect_right(4, [&](const Group& group) {
        for (const Kind& kind : kKinds) Program(kind, 1, group).run(saved_by(kind, 4));
        return std::string();
    });
    expect_right(2, [&](const Group& group) {
        std::string wrong;
        for (const Kind& kind : kKinds)
            wrong += resume_everywhere(kind, 1, group, saved_by(kind, 4), 0, saved_by(kind, 2));
        return wrong;
    });
    expect_right(1, [&](const Group& group) {
        std::string wrong;
        for (const Kind& kind : kKinds)
            wrong += resume_everywhere(kind, 1, group, saved_by(kind, 2), 1);
        return wrong;
    });
}

// Covers 10.dl_state_dict.bin, 10.sampler.bin, 30.1, 30.13.
TEST(ResumedLoaders, ContinueWithTheNextSamplesOnMoreProcesses) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    const auto saved_by = [&](const Kind& kind, int processes) {
        return str(folder.path(), '/', kind.name, processes);
    };
    expect_right(1, [&](const Group& group) {
        for (const Kind& kind : kKinds) Program(kind, 1, group).run(saved_by(kind, 1));
        return std::string();
    });
    expect_right(2, [&](const Group& group) {
        std::string wrong;
        for (const Kind& kind : kKinds)
            wrong += resume_everywhere(kind, 1, group, saved_by(kind, 1), 0, saved_by(kind, 2));
        return wrong;
    });
    expect_right(4, [&](const Group& group) {
        std::string wrong;
        for (const Kind& kind : kKinds)
            wrong += resume_everywhere(kind, 1, group, saved_by(kind, 2), 1);
        return wrong;
    });
}

}  // namespace
}  // namespace axle
