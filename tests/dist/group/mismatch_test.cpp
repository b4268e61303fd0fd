// Tests collectives of tensors if the calls of the ranks differ or a rank has left. All ranks must
// throw CommError before the timeout, and no rank may hang.
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ops.h"
#include "dist/group/process_group.h"
#include "kernels/error.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using dist::ProcessGroup;
using dist::ReduceOp;
using Group = std::shared_ptr<ProcessGroup>;

enum class Op {
    all_reduce,
    broadcast,
    reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    gather,
    scatter
};
enum class Kind { numel, dtype, op, argument, swapped, skipped, left };

constexpr const char* kOps[] = {"all_reduce",     "broadcast",  "reduce", "all_gather",
                                "reduce_scatter", "all_to_all", "gather", "scatter"};
constexpr const char* kKinds[] = {"numel", "dtype", "op", "argument", "swapped", "skipped", "left"};

struct Arguments {
    std::int64_t columns = 3;
    DType dtype = f32;
    int root = 0;
    ReduceOp reduction = ReduceOp::sum;
};

void call(Op op, const Group& group, const Arguments& with) {
    const Tensor x = ones({group->size(), with.columns}, {.dtype = with.dtype});
    switch (op) {
        case Op::all_reduce:
            return group->all_reduce(x, with.reduction);
        case Op::broadcast:
            return group->broadcast(x, with.root);
        case Op::reduce:
            return group->reduce(x, with.root, with.reduction);
        case Op::all_gather:
            return static_cast<void>(group->all_gather(x));
        case Op::reduce_scatter:
            return static_cast<void>(group->reduce_scatter(x, with.reduction));
        case Op::all_to_all:
            return static_cast<void>(group->all_to_all(x));
        case Op::gather:
            return static_cast<void>(group->gather(x, with.root));
        case Op::scatter:
            return static_cast<void>(group->scatter(x, with.root));
    }
}

// Makes the call of the deviating rank.
void differ(Op op, Kind kind, Group& group) {
    switch (kind) {
        case Kind::numel:
            return call(op, group, {.columns = 4});
        case Kind::dtype:
            return call(op, group, {.dtype = i32});
        case Kind::op:
            return call(op == Op::all_reduce ? Op::broadcast : Op::all_reduce, group, {});
        case Kind::argument:
            // An op that has neither a root nor a reduction is replaced by a similar op.
            if (op == Op::all_gather) return static_cast<void>(group->all_gather_uneven(ones({3})));
            if (op == Op::all_to_all) {
                const std::vector<Tensor> rows(static_cast<std::size_t>(group->size()),
                                               ones({1, 3}));
                return static_cast<void>(group->all_to_all_uneven(rows));
            }
            return call(op, group, {.root = 1, .reduction = ReduceOp::max});
        case Kind::swapped:
            group->all_reduce(ones({5}));
            return call(op, group, {});
        case Kind::skipped:
            return group->barrier();
        case Kind::left:
            group.reset();
    }
}

class CollectiveMismatch : public testing::TestWithParam<std::tuple<Op, Kind, int>> {};

// Covers 13.verify_operation, 30.9.
TEST_P(CollectiveMismatch, ThrowsCommErrorOnAllRanks) {
    const auto [op, kind, size] = GetParam();
    // Only the root of a scatter passes shape and dtype, so the root passes an invalid argument and
    // then leaves.
    const bool refused = op == Op::scatter && (kind == Kind::numel || kind == Kind::dtype);
    const int different = refused ? 0 : size - 1;
    const std::vector<std::string> errors = tests::run_ranks(size, [&](Group group) {
        const bool differs = group->rank() == different;
        call(Op::all_reduce, group, {});
        if (refused && differs) {
            EXPECT_THROW(group->scatter(kind == Kind::numel ? ones({size + 1}) : Tensor()), Error);
            throw CommError("refused");
        }
        if (differs) {
            differ(op, kind, group);
            if (kind == Kind::left) throw CommError("left");
        } else {
            call(op, group, {});
        }
        if (kind == Kind::swapped && !differs) group->all_reduce(ones({5}));
        group->barrier();
    });
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
        EXPECT_NE(errors[rank], "") << rank;
        // A message with one of these texts would mean that the error was found only after the
        // timeout.
        for (const char* late : {"did not call", "no agreement within", "timed out"})
            EXPECT_THAT(errors[rank], testing::Not(testing::HasSubstr(late))) << rank;
    }
    const std::size_t other = different == 0 ? 1 : 0;
    if (kind == Kind::left || refused)
        EXPECT_THAT(errors[other], testing::HasSubstr(str("rank ", different)));
    else
        EXPECT_THAT(errors[other], testing::HasSubstr(kOps[static_cast<int>(op)]));
}

INSTANTIATE_TEST_SUITE_P(
    Operations, CollectiveMismatch,
    testing::Combine(testing::Values(Op::all_reduce, Op::broadcast, Op::reduce, Op::all_gather,
                                     Op::reduce_scatter, Op::all_to_all, Op::gather, Op::scatter),
                     testing::Values(Kind::numel, Kind::dtype, Kind::op, Kind::argument,
                                     Kind::swapped, Kind::skipped, Kind::left),
                     testing::Values(2, 3, 4)),
    [](const auto& which) {
        return str(kOps[static_cast<int>(std::get<0>(which.param))], '_',
                   kKinds[static_cast<int>(std::get<1>(which.param))], '_',
                   std::get<2>(which.param));
    });

}  // namespace
}  // namespace axle
