// Tests that all training loops end with an error if the loop of one process fails or ends early.
// The error names this process or the reason. If the failed process catches its error and its loop
// does not communicate, the group stays usable.
#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/tree/tree_utils.h"
#include "tests/accel/loading/loaders.h"
#include "tests/job.h"

namespace axle {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using tests::Job;
using tests::RankOutcome;
using Group = std::shared_ptr<dist::ProcessGroup>;

constexpr int kProcesses = 3, kSamples = 60;

// Runs f(group) in kProcesses processes. Waits until all ranks that are not in `except` have
// returned, and then kills the ranks in `except`. The wait ends after 50 s, before collectives time
// out after 60 s. A rank that waits for this timeout therefore counts as not returned.
template <class F>
std::vector<RankOutcome> ends_of(F&& f, const std::vector<int>& except = {}) {
    Job job(kProcesses, [&](const dist::Environment& environment) -> std::string {
        return f(dist::ProcessGroup::create(environment, {.timeout = 60s, .join_timeout = 30s}));
    });
    return job.wait(50s, except);
}

void expect_end(const RankOutcome& rank, const testing::Matcher<std::string>& text) {
    ASSERT_TRUE(rank.reported) << "the rank hung or was killed: status " << rank.status;
    EXPECT_THAT(rank.text, AllOf(StartsWith("threw: "), text));
}

// Returns a dataset whose sample 33 cannot be read if `here` is true.
data::FunctionDataset damaged(bool here) {
    return data::from_function(kSamples, [here](std::int64_t i) -> Tree {
        if (!here || i != 33) return i;
        throw FileError("images/33.png: truncated");
    });
}

// Runs a training loop in which every step communicates.
std::string train(const Group& group, data::DataLoader& loader,
                  accel::PrepareDataLoaderOptions options) {
    accel::prepare_data_loader(loader, group, std::move(options));
    for (auto& batch : loader) group->all_reduce(batch.tensor().to(f32));
    return "finished";
}

class FailingLoader : public testing::TestWithParam<int> {};  // parameter: the number of workers

TEST_P(FailingLoader, EndsAllLoopsWhenOneProcessFails) {
    const auto ends = ends_of([&](const Group& group) {
        data::DataLoader loader(damaged(group->rank() == 1),
                                {.batch_size = 2, .num_workers = GetParam()});
        return train(group, loader, {});
    });
    // With 3 processes, rank 1 has samples 32 and 33 in its sixth batch.
    for (int rank = 0; rank < kProcesses; ++rank) {
        SCOPED_TRACE(rank);
        const std::string why = "batch 5: sample 33: images/33.png: truncated";
        expect_end(ends[static_cast<std::size_t>(rank)],
                   rank == 1 ? testing::Matcher<std::string>(HasSubstr(why))
                             : AllOf(HasSubstr("rank 1 has left"), HasSubstr(why)));
    }
}

TEST_P(FailingLoader, EndsAllLoopsWhenTheDispatchingProcessFails) {
    const auto ends = ends_of([&](const Group& group) {
        data::DataLoader loader(damaged(group->rank() == 0),
                                {.batch_size = 2, .num_workers = GetParam()});
        return train(group, loader, {.config = {.dispatch_batches = true}});
    });
    for (int rank = 0; rank < kProcesses; ++rank) {
        SCOPED_TRACE(rank);
        const std::string why = "batch 16: sample 33: images/33.png: truncated";
        const std::string whose = str("process 0, which reads for process ", rank);
        expect_end(ends[static_cast<std::size_t>(rank)],
                   rank == 0 ? testing::Matcher<std::string>(HasSubstr(why))
                             : AllOf(HasSubstr(whose), HasSubstr(why)));
    }
}

// The process with the failing loader catches the error, keeps the group open and makes no more
// calls.
TEST_P(FailingLoader, EndsWaitingLoopsWhenTheErrorIsCaught) {
    const auto body = [&](const Group& group) -> std::string {
        data::DataLoader loader(damaged(group->rank() == 1),
                                {.batch_size = 2, .num_workers = GetParam()});
        if (group->rank() != 1) return train(group, loader, {});
        try {
            return train(group, loader, {});
        } catch (const FileError&) {
            for (;;) ::pause();
        }
    };
    const auto ends = ends_of(body, {1});
    for (const int rank : {0, 2}) {
        SCOPED_TRACE(rank);
        expect_end(ends[static_cast<std::size_t>(rank)],
                   AllOf(HasSubstr("rank 1 makes no more calls"),
                         HasSubstr("batch 5: sample 33: images/33.png: truncated")));
    }
}

TEST_P(FailingLoader, KeepsTheGroupUsableWhenTheErrorIsCaught) {
    const auto ends = ends_of([&](const Group& group) -> std::string {
        data::DataLoader loader(damaged(group->rank() == 1),
                                {.batch_size = 2, .num_workers = GetParam()});
        accel::prepare_data_loader(loader, group, {});
        std::string end = "finished";
        try {
            for ([[maybe_unused]] auto& batch : loader) {
            }
        } catch (const FileError&) {
            end = "caught";
        }
        group->barrier();
        return end;
    });
    for (int rank = 0; rank < kProcesses; ++rank)
        EXPECT_EQ(ends[static_cast<std::size_t>(rank)].text, rank == 1 ? "caught" : "finished");
}

INSTANTIATE_TEST_SUITE_P(Workers, FailingLoader, testing::Values(0, 2),
                         testing::PrintToStringParamName());

TEST(SliceFunction, EndsAllLoopsWhenItThrows) {
    const auto ends = ends_of([&](const Group& group) {
        data::DataLoader loader(tests::numbers(kSamples), {.batch_size = 2});
        int calls = 0;
        const auto slice = [&](const Tree& batch, accel::RowRange part, int,
                               int processes) -> Tree {
            EXPECT_EQ(group->rank(), 0);
            EXPECT_EQ(processes, kProcesses);
            if (++calls < 8) return slice_tensors(batch, part.begin, part.end);
            throw std::runtime_error("slice function failed");
        };
        return train(group, loader,
                     {.config = {.dispatch_batches = true}, .slice_fn_for_dispatch = slice});
    });
    for (const RankOutcome& rank : ends) expect_end(rank, HasSubstr("slice function failed"));
}

// Process `who` leaves its loop after the second batch and exits. Expects that the errors of all
// other processes name process `who`.
void expect_named_after_leaving(int who, accel::DataLoaderConfiguration config) {
    const auto ends = ends_of([&](const Group& group) -> std::string {
        data::DataLoader loader(tests::numbers(kSamples), {.batch_size = 2});
        accel::prepare_data_loader(loader, group, {.config = config});
        for (auto& batch : loader) {
            group->all_reduce(batch.tensor().to(f32));
            if (group->rank() == who && loader.position() == 2) break;
        }
        return "left";
    });
    for (int rank = 0; rank < kProcesses; ++rank) {
        SCOPED_TRACE(rank);
        const RankOutcome& end = ends[static_cast<std::size_t>(rank)];
        if (rank == who) {
            EXPECT_EQ(end.text, "left");
        } else {
            expect_end(end, HasSubstr(str("rank ", who, " has left")));
        }
    }
}

TEST(PreparedLoader, EndsAllLoopsWhenOneProcessExitsEarly) { expect_named_after_leaving(1, {}); }
TEST(PreparedLoader, EndsAllLoopsWhenTheDispatchingProcessExitsEarly) {
    expect_named_after_leaving(0, {.dispatch_batches = true});
}
TEST(PreparedLoader, EndsAllLoopsWhenAReceivingProcessExitsEarly) {
    expect_named_after_leaving(1, {.dispatch_batches = true});
}

// Rank 1 leaves its loop and then calls another collective.
TEST(PreparedLoader, ReportsACollectiveCalledAfterLeavingTheLoop) {
    const auto ends = ends_of([&](const Group& group) -> std::string {
        data::DataLoader loader(tests::numbers(kSamples), {.batch_size = 2});
        accel::prepare_data_loader(loader, group, {});
        for (auto& batch : loader) {
            if (group->rank() == 1 && loader.position() == 2) break;
            group->all_reduce(batch.tensor().to(f32));
        }
        group->barrier();
        return "left";
    });
    for (const RankOutcome& rank : ends)
        expect_end(rank, AllOf(HasSubstr("barrier"), HasSubstr("all_reduce"), HasSubstr("rank 1")));
}

}  // namespace
}  // namespace axle
