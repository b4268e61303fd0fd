#include <atomic>
#include <new>

#include <unistd.h>

#include "dist/transport/socket.h"
#include "gmock/gmock.h"
#include "tests/dist/job.h"
#include "tests/dist/rendezvous/joined.h"
#include "tests/wait.h"

namespace axle::tests {
namespace {

using dist::Collective;
using dist::CollectiveCall;
using dist::Control;
using dist::ReduceOp;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Counts = std::vector<std::vector<std::int64_t>>;

CollectiveCall all_reduce(std::uint64_t sequence) {
    return {.sequence = sequence, .op = Collective::all_reduce, .dtype = f32, .numel = 100};
}
Counts agree(Control& control, const CollectiveCall& call) {
    control.announce_call(call);
    return control.wait_for_agreement(call.group, call.sequence);
}

TEST(Agreement, ReturnsCountsOfAllRanksInOrder) {
    for (const int size : {1, 2, 3, 4}) {
        const auto errors = run_job(ControlJob(size), [&](Control& control) {
            for (std::uint64_t i = 1; i <= 20; ++i) {
                CollectiveCall call{.sequence = i, .op = Collective::all_gather_uneven};
                call.counts = {control.rank(), static_cast<std::int64_t>(i)};
                const Counts counts = agree(control, call);
                ASSERT_EQ(std::ssize(counts), size);
                for (int rank = 0; rank < size; ++rank)
                    EXPECT_THAT(counts[static_cast<std::size_t>(rank)], ElementsAre(rank, i));
            }
            EXPECT_THAT(agree(control, {.sequence = 21}),
                        AllOf(testing::SizeIs(size), Each(IsEmpty())));
        });
        EXPECT_THAT(errors, Each(""));
    }
}

TEST(Agreement, AllowsCallsAheadOfOtherRanks) {
    const auto errors = run_job(ControlJob(3), [](Control& control) {
        for (std::uint64_t i = 1; i <= 200; ++i) control.announce_call({.sequence = i});
        for (std::uint64_t i = 1; i <= 200; ++i) control.wait_for_agreement(0, i);
    });
    EXPECT_THAT(errors, Each(""));
}

// The call that could not be queued is not announced, so rank 1 does not get an agreement without
// the data of rank 0.
TEST(Agreement, AllowsRepeatingACallThatCouldNotBeQueued) {
    const auto errors = run_job(ControlJob(2), [](Control& control) {
        if (control.rank() == 0) {
            const auto fail = [] { throw std::bad_alloc(); };
            EXPECT_THROW(control.start_call(all_reduce(1), fail), std::bad_alloc);
        }
        agree(control, all_reduce(1));
        barrier(control, 2);
    });
    EXPECT_THAT(errors, Each(""));
}

TEST(Agreement, AcceptsCountsUpToTheLimitPerCall) {
    const auto errors = run_job(ControlJob(2), [](Control& control) {
        CollectiveCall call{.sequence = 1, .op = Collective::all_to_all_uneven};
        call.counts.assign(dist::kMaxCounts, control.rank());
        const Counts counts = agree(control, call);
        EXPECT_THAT(counts[1], AllOf(testing::SizeIs(dist::kMaxCounts), Each(1)));
        call.counts.push_back(0);
        EXPECT_THROW(control.announce_call(call), ValueError);
    });
    EXPECT_THAT(errors, Each(""));
}

TEST(Agreement, ReportsTheCallsOfAllRanksIfTheyDiffer) {
    const auto errors = run_job(ControlJob(2), [](Control& control) {
        barrier(control, 1);
        CollectiveCall call = all_reduce(2);
        if (control.rank() == 1) call.numel = 200;
        agree(control, call);
    });
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_THAT(
        errors[0],
        testing::AnyOf("collective #2 of the group differs: rank 0 calls all_reduce(sum) of "
                       "100 float32, rank 1 calls all_reduce(sum) of 200 float32",
                       "collective #2 of the group differs: rank 1 calls all_reduce(sum) of "
                       "200 float32, rank 0 calls all_reduce(sum) of 100 float32"));
}

// Every rank must report every kind of difference, and no rank may hang.
TEST(Agreement, DetectsDifferentOpsAndArgumentsOnAllRanks) {
    struct Case {
        std::function<void(CollectiveCall&)> change;
        const char* shown;
    };
    const Case cases[] = {
        {[](CollectiveCall& p) { p.op = Collective::reduce_scatter; }, "reduce_scatter(sum)"},
        {[](CollectiveCall& p) { p.op = Collective::barrier; }, "calls barrier"},
        {[](CollectiveCall& p) { p.op = Collective::barrier; }, "if a rank leaves a loop early"},
        {[](CollectiveCall& p) { p.dtype = f64; }, "float64"},
        {[](CollectiveCall& p) { p.numel = 99; }, " 99 "},
        {[](CollectiveCall& p) { p.numel = 0; }, "of 0 float32"},
        {[](CollectiveCall& p) { p.root = 0; }, "to rank 0"},
        {[](CollectiveCall& p) { p.reduce_op = ReduceOp::mean; }, "all_reduce(mean)"},
        {[](CollectiveCall& p) {
             p.counts = {1, 2};
         },
         "with 2 sizes"},
    };
    for (const Case& c : cases) {
        for (int size = 2; size <= 4; ++size) {
            const int odd = size - 1;
            const auto errors = run_job(ControlJob(size), [&](Control& control) {
                CollectiveCall call = all_reduce(1);
                if (control.rank() == odd) c.change(call);
                agree(control, call);
            });
            EXPECT_THAT(errors, Each(AllOf(HasSubstr("collective #1 of the group differs"),
                                           HasSubstr(c.shown), HasSubstr(str("rank ", odd)))));
        }
    }
}

TEST(Agreement, RejectsACollectiveOutOfOrder) {
    const auto errors = run_job(ControlJob(2), [](Control& control) {
        barrier(control, 1);
        barrier(control, control.rank() == 0 ? 2 : 3);
    });
    EXPECT_THAT(errors, Each(HasSubstr("the next call of rank 1 in group 0 must have the number 2: "
                                       "it has the number 3")));
}

TEST(Agreement, SeparatesCallsOfDifferentGroups) {
    const auto errors = run_job(ControlJob(4), [](Control& control) {
        const bool odd = control.rank() % 2 == 1;
        const std::uint32_t id = odd ? 2 : 1;
        control.open_group(id, odd ? std::vector{3, 1} : std::vector{0, 2});
        for (std::uint64_t i = 1; i <= (odd ? 30 : 10); ++i) {
            CollectiveCall call{.group = id, .sequence = i, .op = Collective::all_gather_uneven};
            call.counts = {control.rank()};
            EXPECT_EQ(agree(control, call), odd ? (Counts{{3}, {1}}) : (Counts{{0}, {2}}));
        }
        barrier(control, 1);
    });
    EXPECT_THAT(errors, Each(""));
}

TEST(Agreement, ReportsTheGroupInWhichCallsDiffer) {
    const auto errors = run_job(ControlJob(3), [](Control& control) {
        if (control.rank() == 0) return barrier(control, 1);
        control.open_group(7, {1, 2});
        CollectiveCall call = all_reduce(1);
        call.group = 7;
        call.op = Collective::broadcast;
        call.root = control.rank() - 1;
        agree(control, call);
    });
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("collective #1 of group 7 (ranks 1, 2) differs"),
                                   HasSubstr("rank 1 calls broadcast from rank 1 of 100 float32"),
                                   HasSubstr("rank 2 calls broadcast from rank 2"))));
}

TEST(Agreement, RejectsAGroupWhoseListOfRanksDiffersBetweenRanks) {
    const auto errors = run_job(ControlJob(2), [](Control& control) {
        control.open_group(1, control.rank() == 0 ? std::vector{0, 1} : std::vector{1, 0});
        barrier(control, 1);
        barrier(control, 2);
    });
    EXPECT_THAT(errors, testing::Contains(HasSubstr("new_group")));
}

TEST(Agreement, RejectsInvalidRanksOfAGroupAndCallsInAnUnknownGroup) {
    for (const std::vector<int>& ranks : {std::vector{0, 2}, std::vector{-1}, std::vector{0, 0}}) {
        const auto errors = run_job(ControlJob(2), [&](Control& control) {
            if (control.rank() == 0) control.open_group(1, ranks);
            barrier(control, 1);
            barrier(control, 2);
        });
        EXPECT_THAT(errors,
                    testing::Contains(HasSubstr("the ranks must be different ranks of the job")));
    }
    const auto errors = run_job(ControlJob(2), [&](Control& control) {
        if (control.rank() == 0) control.announce_call({.group = 9, .sequence = 1});
        barrier(control, 1);
        barrier(control, 2);
    });
    EXPECT_THAT(errors, testing::Contains("rendezvous: rank 0 is not in group 9"));
}

TEST(Agreement, ReportsARankThatHasLeft) {
    const auto errors = run_job(ControlJob(3), [](Control& control) {
        barrier(control, 1);
        if (control.rank() != 1) barrier(control, 2);
    });
    EXPECT_EQ(errors[1], "");
    EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 1 has left, but collective #2 (barrier) needs"),
                                 testing::Eq(errors[2])));
}

TEST(Agreement, ReportsTheReasonOfARankThatHasLeft) {
    for (const int who : {0, 1}) {
        const auto errors = run_job(ControlJob(2), [&](Control& control) {
            if (control.rank() != who) return barrier(control, 1);
            control.set_leave_reason("an older reason");
            control.set_leave_reason("its disk is full" + std::string(1 << 20, '.'));
        });
        EXPECT_THAT(errors[static_cast<std::size_t>(1 - who)],
                    HasSubstr("needs it: its disk is full..."));
    }
}

TEST(Agreement, ReportsThatRankZeroHasLeft) {
    const auto errors = run_job(ControlJob(2), [](Control& control) {
        barrier(control, 1);
        if (control.rank() != 0) barrier(control, 2);
    });
    EXPECT_EQ(errors[0], "");
    EXPECT_THAT(errors[1], HasSubstr("rank 0 has left, but collective #2 (barrier) needs it"));
}

TEST(Agreement, AllowsCallsOfSubgroupsAfterARankHasLeft) {
    const auto errors = run_job(ControlJob(3), [](Control& control) {
        if (control.rank() == 2) return barrier(control, 1);
        control.open_group(1, {0, 1});
        barrier(control, 1);
        for (std::uint64_t i = 1; i <= 50; ++i) agree(control, {.group = 1, .sequence = i});
    });
    EXPECT_THAT(errors, Each(""));
}

// Covers 30.9.
TEST(Agreement, ReportsMissingRanksAndTheirLastCollective) {
    ControlJob job(3);
    job.options.timeout = std::chrono::milliseconds(500);
    const auto errors = run_job(job, [](Control& control) {
        barrier(control, 1);
        if (control.rank() != 2) {
            agree(control, all_reduce(2));
        } else {
            failure_of(control).wait_for(std::chrono::seconds(20));
            control.announce_call({.sequence = 2});
        }
    });
    EXPECT_THAT(errors, Each(str("rank 2 (pid ", ::getpid(), ", host ", dist::host_name(),
                                 ") is alive but did not call all_reduce #2 within 0.5 s; its last "
                                 "collective was barrier #1")));
}

TEST(Agreement, ReportsTheActivityThatARankHasSet) {
    ControlJob job(2);
    job.options.timeout = std::chrono::milliseconds(600);
    job.options.heartbeat_timeout = std::chrono::milliseconds(800);  // one heartbeat per 200 ms
    const auto errors = run_job(job, [](Control& control) {
        if (control.rank() == 0) return barrier(control, 1);
        control.note("a\tlong evaluation");
        failure_of(control).wait_for(std::chrono::seconds(20));
        control.get("key", std::chrono::seconds(1));
    });
    EXPECT_THAT(errors, Each(HasSubstr("it has called no collective; its activity was "
                                       "a\\x09long evaluation")));
}

TEST(Agreement, ThrowsTheReportedFailureOnAllRanks) {
    std::atomic<int> here = 0, woken = 0;
    const auto errors = run_job(ControlJob(3), [&](Control& control) {
        control.on_failure([&] { ++woken; });
        barrier(control, 1);
        ++here;
        if (control.rank() == 2) {
            while (here < 3) std::this_thread::yield();
            control.report("the engine of rank 2 is broken");
            EXPECT_EQ(control.failure(), "the engine of rank 2 is broken");
        }
        try {
            barrier(control, 2);
            ADD_FAILURE() << "the job continues";
        } catch (const CommError&) {
        }
        EXPECT_THROW(control.set("key", ""), CommError);
        EXPECT_THROW(control.get("key", std::chrono::seconds(1)), CommError);
        EXPECT_THROW(control.add("key", 1), CommError);
        EXPECT_THROW(control.open_group(1, {0}), CommError);
        EXPECT_THROW(control.announce_call({.sequence = 3}), CommError);
        EXPECT_TRUE(comes_true([&] { return woken == 3; }));
        bool at_once = false;
        control.on_failure([&] { at_once = true; });
        EXPECT_TRUE(at_once);
        control.throw_failure("something else");
    });
    EXPECT_THAT(errors, Each("the engine of rank 2 is broken"));
    EXPECT_EQ(woken, 3);
}

TEST(Agreement, ThrowsTheGivenErrorIfTheJobHasNotFailed) {
    const auto errors = run_job(ControlJob(1), [](Control& control) {
        EXPECT_EQ(control.failure(), std::nullopt);
        control.throw_failure("connection reset");
    });
    EXPECT_THAT(errors, ElementsAre("connection reset"));
}

TEST(Agreement, AllowsConcurrentCallsInSeveralGroups) {
    const auto errors = run_job(ControlJob(3), [](Control& control) {
        for (std::uint32_t group = 1; group <= 4; ++group) control.open_group(group, {0, 1, 2});
        const auto failures = run_threads(4, [&](int thread) {
            const auto group = static_cast<std::uint32_t>(thread + 1);
            for (std::uint64_t i = 1; i <= 100; ++i)
                agree(control, {.group = group, .sequence = i});
        });
        EXPECT_THAT(failures, Each(""));
    });
    EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace axle::tests
