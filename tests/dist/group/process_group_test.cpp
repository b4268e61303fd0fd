// Tests messages, subgroups, options and errors of ProcessGroup.
#include "dist/group/process_group.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/system/numerics.h"
#include "kernels/error.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using dist::ProcessGroup;
using dist::ReduceOp;
using dist::Work;
using Group = std::shared_ptr<ProcessGroup>;
using testing::HasSubstr;

TEST(ProcessGroup, KeepsGlobalRanksInNestedSubgroups) {
    tests::on_ranks(4, [&](const Group& group) {
        const Group reversed = group->new_group({3, 2, 1});
        ASSERT_EQ(reversed != nullptr, group->rank() != 0);
        if (reversed == nullptr) return;
        EXPECT_EQ(reversed->rank(), 3 - group->rank());
        const Group pair = reversed->new_group({2, 0});
        ASSERT_EQ(pair != nullptr, group->rank() != 2);
        if (pair == nullptr) return;
        EXPECT_EQ(pair->global_ranks(), (std::vector<int>{1, 3}));
        const Tensor x = full({1}, group->rank(), {f32});
        pair->broadcast(x, 0);
        EXPECT_EQ(x.item(), 1);
    });
}

TEST(ProcessGroup, MatchesMessagesByTag) {
    tests::on_ranks(3, [&](const Group& group) {
        const int next = (group->rank() + 1) % 3, before = (group->rank() + 2) % 3;
        const Tensor a = full({4}, group->rank(), {f32}),
                     b = full({200000}, 10 + group->rank(), {i32});
        const Tensor c = zeros({4}), d = zeros({2000, 100}, {i32}).transpose(0, 1);
        Work first = group->send_async(a, next, 1);
        Work second = group->send_async(b.view({100, 2000}), next, 2);
        group->recv(d, before, 2);
        group->recv(c, before, 1);
        first.wait();
        second.wait();
        EXPECT_EQ(c.max().item(), before);
        EXPECT_EQ(d.min().item(), 10 + before);
        EXPECT_EQ(d.max().item(), 10 + before);
    });
}

TEST(ProcessGroup, ExchangesMessagesDuringCollectives) {
    tests::on_ranks(4, [&](const Group& group) {
        const Tensor x = full({3}, group->rank(), {f32});
        if (group->rank() == 2) group->send(x, 3);
        if (group->rank() == 3) {
            group->recv(x, 2);
            EXPECT_EQ(x.max().item(), 2);
        }
        group->barrier();
    });
}

TEST(ProcessGroup, ThrowsCommErrorOnBothSidesIfShapesOfAMessageDiffer) {
    const std::vector<std::string> errors = tests::run_ranks(2, [&](const Group& group) {
        if (group->rank() == 0) group->send(zeros({1000, 3}), 1);
        if (group->rank() == 1) group->recv(zeros({1000, 4}), 0);
        group->barrier();
    });
    for (const std::string& error : errors)
        EXPECT_THAT(error, HasSubstr("rank 0 sends float32 [1000, 3], rank 1 expects float32 "
                                     "[1000, 4], tag 0"));
}

// "gloo" is PyTorch's name for the backend of CPU tensors.
TEST(ProcessGroup, UsesTcpIfTheBackendIsGlooOrNotGiven) {
    for (const char* name : {"", "tcp", "gloo"}) {
        dist::ProcessGroupOptions options = tests::short_options();
        options.backend = name;
        const auto errors = tests::run_ranks(
            2,
            [](const Group& group) {
                EXPECT_EQ(group->backend(), "tcp");
                group->barrier();
            },
            options);
        EXPECT_THAT(errors, testing::Each("")) << name;
    }
}

TEST(ProcessGroup, RejectsInvalidArgumentsOnOneProcess) {
    const Group group = ProcessGroup::alone();
    EXPECT_EQ(group->size(), 1);
    EXPECT_EQ(group->backend(), "none");
    EXPECT_THROW(group->all_reduce(Tensor()), UsageError);
    EXPECT_THROW(group->all_reduce(zeros({2}, {i64}), ReduceOp::mean), DTypeError);
    EXPECT_THROW(group->all_reduce(zeros({2}, {boolean}), ReduceOp::sum), DTypeError);
    EXPECT_THROW(group->all_reduce(zeros({2}).set_requires_grad()), UsageError);
    EXPECT_THROW(group->broadcast(zeros({2}), 1), IndexError);
    EXPECT_THROW(group->reduce_scatter(zeros({2})), ShapeError);
    EXPECT_THROW(group->all_gather_into_async(zeros({2}), zeros({3})), ShapeError);
    EXPECT_THROW(group->all_gather_uneven(zeros({})), ShapeError);
    EXPECT_THROW(group->all_to_all_uneven({}), ValueError);
    EXPECT_THROW(group->send(zeros({1}), 0), ValueError);
    EXPECT_THROW(group->new_group({0, 0}), ValueError);
    EXPECT_THROW(group->new_group({1}), IndexError);
    EXPECT_THROW(ProcessGroup::create({}, {.backend = "ucx"}), ValueError);
}

TEST(ProcessGroup, OverwritesLeafTensorsUnderNoGrad) {
    tests::on_ranks(2, [&](const Group& group) {
        Tensor x = full({3}, group->rank() + 1, {f32});
        x.set_requires_grad();
        const NoGrad no_grad;
        const std::uint32_t version = x.version();
        group->all_reduce(x);
        EXPECT_EQ(x.max().item(), 3);
        EXPECT_GT(x.version(), version);
    });
}

// Covers 9.InitProcessGroupKwargs.
TEST(ProcessGroup, RejectsInvalidTimeoutVariable) {
    for (const char* wrong : {"", "0", "-3", "ten", "3s", "nan"}) {
        ::setenv("AXLE_TIMEOUT_S", wrong, 1);
        EXPECT_THROW(ProcessGroup::create(dist::Environment()), ValueError) << wrong;
    }
    ::setenv("AXLE_TIMEOUT_S", "2.5", 1);
    EXPECT_NO_THROW(ProcessGroup::create(dist::Environment()));
    ::unsetenv("AXLE_TIMEOUT_S");
}

// Covers 9.InitProcessGroupKwargs, 12.wait_for_everyone.
TEST(ProcessGroup, ReportsTheMissingRankAfterTheTimeout) {
    std::promise<void> ended;
    const std::vector<std::string> errors = tests::run_ranks(
        2,
        [&](const Group& group) {
            group->barrier();
            if (group->rank() == 1) {
                EXPECT_EQ(ended.get_future().wait_for(std::chrono::seconds(20)),
                          std::future_status::ready);
                return;
            }
            try {
                group->all_reduce(zeros({1}));
            } catch (...) {
                ended.set_value();
                throw;
            }
        },
        tests::short_options(1000));
    EXPECT_THAT(errors[0], HasSubstr(") is alive but did not call all_reduce #"));
    EXPECT_THAT(errors[0], testing::StartsWith("rank 1 (pid "));
}

TEST(ProcessGroup, EndsCollectivesOfOtherRanksIfARankLeaves) {
    const std::vector<std::string> errors = tests::run_ranks(2, [&](const Group& group) {
        group->barrier();
        if (group->rank() == 1) static_cast<void>(group->recv_async(zeros({1}), 0));
        if (group->rank() == 0) group->all_reduce(zeros({1}));
    });
    EXPECT_THAT(errors[0],
                testing::AllOf(HasSubstr("rank 1"), testing::Not(HasSubstr("did not call"))));
}

}  // namespace
}  // namespace axle
