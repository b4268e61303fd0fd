// Tests a rank that has not left but makes no more calls.
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

TEST(MissingRank, EndsTheWaitOfOtherRanksWithItsReason) {
    std::atomic<int> waiting = 2;
    const auto ends = run_ranks(3, [&](const Group& group) {
        group->barrier();
        if (group->rank() == 1) {
            group->set_missing_reason("images/33.png: truncated");
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
        EXPECT_THAT(
            ends[static_cast<std::size_t>(rank)],
            AllOf(HasSubstr("rank 1 makes no more calls, but collective #2 (all_reduce) needs"),
                  HasSubstr("images/33.png: truncated")));
}

TEST(MissingRank, IsCancelledByAnEmptyReasonOrTheNextCall) {
    on_ranks(3, [&](const Group& group) {
        if (group->rank() > 0) group->set_missing_reason("a moment");
        if (group->rank() == 1) {
            group->set_missing_reason({});
            std::this_thread::sleep_for(3500ms);
        }
        group->barrier();
        group->barrier();
    });
}

TEST(Agreements, ClearAMissingRankOnItsNextCall) {
    dist::Agreements agreements(2);
    const auto barrier = [](std::uint64_t sequence) {
        return dist::CollectiveCall{.sequence = sequence, .op = dist::Collective::barrier};
    };
    agreements.mark_missing(1, "a moment");
    EXPECT_FALSE(agreements.announce_call(1, barrier(1)));
    EXPECT_TRUE(agreements.announce_call(0, barrier(1)));
    EXPECT_FALSE(agreements.announce_call(0, barrier(2)));
    EXPECT_THROW(agreements.mark_missing(1, "gone"), CommError);
    EXPECT_TRUE(agreements.announce_call(1, barrier(2)));
    agreements.mark_missing(1, "gone");
    EXPECT_THROW(agreements.announce_call(0, barrier(3)), CommError);
}

}  // namespace
}  // namespace axle
