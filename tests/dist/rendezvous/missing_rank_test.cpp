// Tests a rank that has not left but makes no more calls.
#include <atomic>
#include <chrono>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "core/ops.h"
#include "dist/rendezvous/agreements.h"
#include "dist/rendezvous/call_client.h"
#include "kernels/error.h"
#include "tests/dist/ranks.h"
#include "tests/wait.h"

namespace axle {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using tests::run_ranks;
using Group = std::shared_ptr<dist::ProcessGroup>;

TEST(MissingRank, EndsTheWaitOfOtherRanksWithItsReason) {
    std::atomic<int> waiting = 2;
    const auto ends = run_ranks(3, [&](const Group& group) {
        group->barrier();
        if (group->rank() == 1) {
            group->set_missing_reason("images/33.png: truncated");
            EXPECT_TRUE(tests::comes_true([&] { return waiting == 0; }));
            return;
        }
        try {
            group->all_reduce(ones({3}));
        } catch (...) {
            --waiting;
            throw;
        }
    });
    EXPECT_EQ(ends[1], "");
    for (const int rank : {0, 2})
        EXPECT_THAT(
            ends[static_cast<std::size_t>(rank)],
            AllOf(HasSubstr("rank 1 makes no more calls, but collective #2 (all_reduce) needs"),
                  HasSubstr("images/33.png: truncated")));
}

// The client of a rank. No server reads its messages.
struct LoneClient {
    LoneClient() {
        int ends[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
        channel.emplace(
            dist::Connected{
                .socket = dist::Socket(ends[0]), .in = {}, .address = {}, .server = {}, .ends = {}},
            dist::ControlOptions{.timeout = 20s});
        peer = dist::Socket(ends[1]);
        calls.emplace(*channel, 3);
    }
    // Returns the message that the rank sends if it still makes no call after `time`.
    std::optional<dist::MissingRank> take_missing(std::chrono::milliseconds time) {
        const dist::CallClient::Lock lock(channel->mutex());
        return calls->take_missing(lock, dist::Clock::now() + time);
    }

    dist::Socket peer;
    std::optional<dist::ControlChannel> channel;
    std::optional<dist::CallClient> calls;
};

TEST(MissingRank, IsReportedOnceAfterTwoSecondsWithoutACall) {
    LoneClient client;
    EXPECT_FALSE(client.take_missing(1h));
    client.calls->announce_call({.sequence = 1});
    client.calls->set_missing_reason("a moment");
    EXPECT_FALSE(client.take_missing(0s));
    const auto missing = client.take_missing(2s);
    ASSERT_TRUE(missing);
    EXPECT_EQ(missing->why, "a moment");
    EXPECT_EQ(missing->calls, 1);
    EXPECT_FALSE(client.take_missing(1h));
}

TEST(MissingRank, IsNotReportedAfterAnEmptyReasonOrTheNextCall) {
    LoneClient client;
    client.calls->set_missing_reason("a moment");
    client.calls->set_missing_reason({});
    EXPECT_FALSE(client.take_missing(1h));
    client.calls->set_missing_reason("a moment");
    client.calls->announce_call({.sequence = 1});
    EXPECT_FALSE(client.take_missing(1h));
    client.calls->set_missing_reason("another moment");
    EXPECT_TRUE(client.take_missing(1h));
}

TEST(Agreements, UnmarkAMissingRankOnItsNextCall) {
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
