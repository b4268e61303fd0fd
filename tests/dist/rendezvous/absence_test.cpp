// A process that is there but won't come to what the others call.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ops.h"
#include "dist/rendezvous/agreements.h"
#include "kernels/error.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using tests::on_ranks;
using tests::run_ranks;
using Group = std::shared_ptr<dist::ProcessGroup>;

TEST(Absence, EndsTheWaitOfTheOthersAndSaysWhy) {
    std::atomic<int> waiting = 2;
    const auto ends = run_ranks(3, [&](const Group& group) {
        group->barrier();
        if (group->rank() == 1) {
            group->set_absence("images/33.png: truncated");
            while (waiting > 0) std::this_thread::sleep_for(5ms);
            return;
        }
        const auto begin = std::chrono::steady_clock::now();
        try {
            group->all_reduce(ones({3}));
        } catch (...) {
            --waiting;
            EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
            throw;
        }
        --waiting;
    });
    EXPECT_EQ(ends[1], "");
    for (const int rank : {0, 2})
        EXPECT_THAT(ends[static_cast<std::size_t>(rank)],
                    AllOf(HasSubstr("rank 1 does not come, but collective #2 (all_reduce) waits"),
                          HasSubstr("images/33.png: truncated")));
}

TEST(Absence, IsOverWhenItIsTakenBackOrTheProcessComes) {
    on_ranks(3, [&](const Group& group) {
        if (group->rank() > 0) group->set_absence("a moment");
        if (group->rank() == 1) {
            group->set_absence({});
            std::this_thread::sleep_for(3500ms);
        }
        group->barrier();
        group->barrier();
    });
}

TEST(Absence, IsOverForTheServerWithTheNextProposal) {
    dist::Agreements agreements(2);
    const auto barrier = [](std::uint64_t sequence) {
        return dist::Proposal{.sequence = sequence, .op = dist::Collective::barrier};
    };
    agreements.stay_away(1, "a moment");
    EXPECT_FALSE(agreements.propose(1, barrier(1)));
    EXPECT_TRUE(agreements.propose(0, barrier(1)));
    EXPECT_FALSE(agreements.propose(0, barrier(2)));
    EXPECT_THROW(agreements.stay_away(1, "gone"), CommError);
    EXPECT_TRUE(agreements.propose(1, barrier(2)));
    agreements.stay_away(1, "gone");
    EXPECT_THROW(agreements.propose(0, barrier(3)), CommError);
}

}  // namespace
}  // namespace axle
