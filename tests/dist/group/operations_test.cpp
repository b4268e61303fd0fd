#include "dist/group/operations.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/ops.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/dist/group/operations.h"

namespace axle {
namespace {

using dist::ProcessGroup;
using dist::Reduction;
using tests::expect_error;
using tests::expect_everywhere;
using tests::expect_same_bits;
using tests::json_of;
using tests::on_ranks;
using Group = std::shared_ptr<ProcessGroup>;

TEST(TreeCollectives, ThrowCommErrorIfRanksCallDifferentOperations) {
    expect_everywhere<CommError>(
        2, {"rank 0 calls gather, rank 1 calls reduce sum times 1"}, [](ProcessGroup& group) {
            group.rank() == 0 ? dist::gather(group, ones({2})) : dist::reduce(group, ones({2}));
        });
    expect_everywhere<CommError>(
        2, {"rank 0 calls reduce max times 1, rank 1 calls reduce min times 1"},
        [](ProcessGroup& group) {
            dist::reduce(group, ones({2}), group.rank() == 0 ? "max" : "min");
        });
    expect_everywhere<CommError>(
        2, {"broadcast from rank 0", "broadcast from rank 1"},
        [](ProcessGroup& group) { dist::broadcast(group, ones({2}), group.rank()); });
}

// Covers 3.reduce, 13.reduce, 31.reduce.
TEST(Reduce, ReducesEveryTensorWithoutChangingInputs) {
    on_ranks(3, [](const Group& group) {
        const double rank = group->rank();
        const Tensor x = tensor({rank, 1 - rank}, {2}), n = full({1}, rank, {i64});
        const Tree all{{"x", x}, {"n", n}, {"h", full({2}, rank, {f16})}};
        EXPECT_EQ(json_of(dist::reduce(*group, all)),
                  R"({"x": [3.0, 0.0], "n": [3], "h": [3.0, 3.0]})");
        EXPECT_EQ(json_of(dist::reduce(*group, all, "max")),
                  R"({"x": [2.0, 1.0], "n": [2], "h": [2.0, 2.0]})");
        EXPECT_EQ(json_of(dist::reduce(*group, all, Reduction::min)),
                  R"({"x": [0.0, -1.0], "n": [0], "h": [0.0, 0.0]})");
        EXPECT_EQ(dist::reduce(*group, x, "mean", 10).to_vector(), std::vector<double>({10, 0}));
        EXPECT_TRUE(dist::reduce(*group, x, "none", 10).is_same(x));
        EXPECT_EQ(x.to_vector(), std::vector<double>({rank, 1 - rank}));
        const Tensor any = full({1}, rank == 1, {boolean});
        EXPECT_EQ(dist::reduce(*group, any, "max").item(), 1);
        const Tensor weight = ones({1}, {.requires_grad = true});
        EXPECT_FALSE(dist::reduce(*group, weight).requires_grad());
    });
}

TEST(Reduce, ScalesACopyOnOneProcess) {
    const Group alone = ProcessGroup::alone();
    const Tensor x = ones({2});
    const Tree half = dist::reduce(*alone, Tree::list({x, "text"}), "mean", 0.5);
    EXPECT_EQ(json_of(half), R"([[0.5, 0.5], "text"])");
    EXPECT_EQ(x.to_vector(), std::vector<double>({1, 1}));
    EXPECT_FALSE(dist::reduce(*alone, x).is_same(x));
}

// Covers 3.reduce, 13.reduce, 31.reduce.
TEST(Reduce, RejectsUnsupportedDTypesReductionsAndDifferentShapes) {
    for (const int size : {1, 2}) {
        const auto refuse = [&](std::initializer_list<const char*> parts, DType dtype,
                                const char* reduction, double scale) {
            expect_everywhere<DTypeError>(size, parts, [&](ProcessGroup& group) {
                dist::reduce(group, Tree::list({ones({2}, {dtype})}), reduction, scale);
            });
        };
        refuse({"reduce: batch[0]: integers have no mean", "floating dtype", "int64"}, i64, "mean",
               1);
        refuse({"reduce: batch[0]: integers cannot be scaled", "int32"}, i32, "sum", 0.5);
        refuse({"reduce: batch[0]: booleans support only max"}, boolean, "sum", 1);
    }
    expect_everywhere<ValueError>(
        2, {"reduce: unknown reduction 'median': use none, sum, mean, max or min"},
        [](ProcessGroup& group) { dist::reduce(group, ones({2}), "median"); });
    expect_everywhere<ShapeError>(
        2, {"reduce: batch has different shapes: rank 0 [1], rank 1 [2]"},
        [](ProcessGroup& group) { dist::reduce(group, ones({group.rank() + 1})); });
}

// Covers 13.broadcast.
TEST(Broadcast, OverwritesTensorsWithValuesOfOneRank) {
    on_ranks(3, [](const Group& group) {
        for (const int from : {0, 2}) {
            const Tensor x = full({2}, group->rank(), {f32});
            const Tensor grid = full({2, 3}, group->rank(), {f32});
            const Tree all = dist::broadcast(*group, Tree::list({x, grid.t()}), from);
            EXPECT_TRUE(all[0].tensor().is_same(x));
            EXPECT_EQ(x.to_vector(), std::vector<double>(2, from));
            EXPECT_EQ(grid.to_vector(), std::vector<double>(6, from));
        }
        const Tensor weight = full({1}, group->rank(), {f32}).set_requires_grad();
        dist::broadcast(*group, std::vector{weight}, 1);
        EXPECT_EQ(weight.item(), 1);
    });
}

TEST(Broadcast, RejectsRanksOutOfRange) {
    expect_everywhere<IndexError>(
        2, {"broadcast: "}, [](ProcessGroup& group) { dist::broadcast(group, ones({1}), 2); });
    expect_error<IndexError>({"broadcast: "},
                             [] { dist::broadcast(*ProcessGroup::alone(), ones({1}), 1); });
}

// Covers 13.broadcast_object_list.
TEST(BroadcastObjectList, ReplacesTheListOnAllRanksAndRejectsAMap) {
    on_ranks(2, [](const Group& group) {
        Tree list = Tree::list({group->rank(), {{"k", group->rank()}}});
        if (group->rank() == 0) list.push_back("only here");
        EXPECT_EQ(json_of(dist::broadcast_object_list(*group, list, 1)), R"([1, {"k": 1}])");
        EXPECT_EQ(json_of(list), R"([1, {"k": 1}])");
        std::vector<std::string> names{str("rank ", group->rank())};
        dist::broadcast_object_list(*group, names);
        EXPECT_EQ(names.at(0), "rank 0");
    });
    expect_everywhere<ValueError>(2, {"expected a list, not a map"}, [](ProcessGroup& group) {
        Tree list = group.rank() == 0 ? Tree::list() : Tree::map();
        dist::broadcast_object_list(group, list);
    });
}

bool shares_memory(const Tensor& a, const Tensor& b) {
    return a.impl()->storage == b.impl()->storage;
}

// Covers 3.pad_across_processes, 13.reduce, 13.pad_across_processes.
TEST(PadAcrossProcesses, PadsADimensionToTheLargestSize) {
    on_ranks(3, [](const Group& group) {
        const std::int64_t rank = group->rank();
        const Tensor x = arange(rank + 1), grid = ones({2, rank + 1});
        const Tree all = dist::pad_across_processes(*group, Tree{{"x", x}, {"loss", ones({})}});
        const std::array texts = {"[0, 0, 0]", "[0, 1, 0]", "[0, 1, 2]"};
        EXPECT_EQ(json_of(all["x"]), texts[static_cast<std::size_t>(rank)]);
        EXPECT_EQ(all["loss"].tensor().dim(), 0);
        EXPECT_EQ(shares_memory(all["x"].tensor(), x), rank == 2);
        const Tensor wide = dist::pad_across_processes(*group, grid, -1, -1, true);
        EXPECT_EQ(wide.shape(), Shape({2, 3}));
        EXPECT_EQ(wide[1][0].item(), rank == 2 ? 1 : -1);
        EXPECT_EQ(wide[1][2].item(), 1);
        EXPECT_TRUE(shares_memory(dist::pad_across_processes(*group, x, 1), x));
        EXPECT_TRUE(shares_memory(dist::pad_across_processes(*group, x, -2), x));
    });
}

TEST(PadAcrossProcesses, ReturnsTensorsWithoutGradients) {
    on_ranks(3, [](const Group& group) {
        const Tensor x = ones({2, group->rank() + 1}, {.requires_grad = true});
        for (const int dim : {0, 1, 2})  // 0: equal sizes, 1: different sizes, 2: not a dimension
            EXPECT_FALSE(dist::pad_across_processes(*group, x, dim).requires_grad()) << dim;
    });
}

// Covers 3.pad_across_processes, 31.pad_across_processes.
TEST(PadAcrossProcesses, KeepsTheDTypeOnEveryRank) {
    on_ranks(2, [](const Group& group) {
        for (const DType dtype : {f64, f32, f16, bf16, i64, i32, u8, boolean}) {
            const Tensor x = ones({group->rank() + 1}, {dtype});
            const Tensor padded = dist::pad_across_processes(*group, x, 0, 1.75);
            EXPECT_EQ(padded.dtype(), dtype);
            const double last = group->rank() == 1 || !is_floating(dtype) ? 1 : 1.75;
            EXPECT_EQ(padded[1].item(), last) << dtype;
        }
    });
}

TEST(PadAcrossProcesses, RejectsTensorsThatCannotBePadded) {
    expect_everywhere<ShapeError>(
        2,
        {"pad_across_processes: batch[0] has different shapes: rank 0 [1], rank 1 [1, 1]",
         "number of dimensions"},
        [](ProcessGroup& group) {
            dist::pad_across_processes(group,
                                       Tree::list({group.rank() == 0 ? ones({1}) : ones({1, 1})}));
        });
    expect_everywhere<ValueError>(
        2, {"pad_across_processes: batch: pad_index does not fit into uint8: -100"},
        [](ProcessGroup& group) {
            dist::pad_across_processes(group, ones({group.rank() + 1}, {u8}), 0, -100);
        });
    expect_everywhere<DTypeError>(
        2, {"pad_across_processes: batch has different dtypes"}, [](ProcessGroup& group) {
            dist::pad_across_processes(group, ones({1}, {group.rank() == 0 ? f32 : i64}));
        });
    expect_everywhere<ValueError>(
        2, {"pad_across_processes: batch is a string, not a tensor"},
        [](ProcessGroup& group) { dist::pad_across_processes(group, Tree("text")); });
}

// Covers 13.copy_tensor_to_devices.
TEST(CopyTensorToDevices, CopiesTheTensorOfOneRankToAllRanks) {
    on_ranks(3, [](const Group& group) {
        for (const DType dtype : {f32, bf16, i64, boolean}) {
            std::optional<Tensor> mine;
            if (group->rank() == 1) mine = tensor({0, 1, 1, 0}, {2, 2}, {.dtype = dtype}).t();
            expect_same_bits(dist::copy_tensor_to_devices(*group, mine),
                             tensor({0, 1, 1, 0}, {2, 2}, {.dtype = dtype}));
        }
    });
    const Tensor x = ones({2});
    expect_same_bits(dist::copy_tensor_to_devices(*ProcessGroup::alone(), x), x);
}

TEST(CopyTensorToDevices, RejectsZeroAndSeveralSourceRanks) {
    expect_everywhere<ValueError>(
        2, {"copy_tensor_to_devices: exactly one process must pass a tensor, but none does"},
        [](ProcessGroup& group) { dist::copy_tensor_to_devices(group, std::nullopt); });
    expect_everywhere<ValueError>(3, {"several do: ranks 0, 2"}, [](ProcessGroup& group) {
        std::optional<Tensor> mine;
        if (group.rank() != 1) mine = ones({1});
        dist::copy_tensor_to_devices(group, mine);
    });
}

// Returns a random tree of tensors with `rows` rows, determined by the state of `random`.
Tree random_tree(std::mt19937& random, std::int64_t rows, int depth) {
    const auto draw = [&](unsigned below) { return static_cast<std::int64_t>(random() % below); };
    const std::int64_t kind = depth == 0 ? 0 : draw(3);
    if (kind == 0) {
        Shape shape{rows};
        for (std::int64_t d = draw(3); d > 0; --d) shape.push_back(1 + draw(3));
        std::vector<double> values;
        for (std::int64_t i = numel(shape); i > 0; --i)
            values.push_back(static_cast<double>(draw(200)));
        const std::array dtypes = {f64, f32, bf16, i64, i32, u8, boolean};
        return tensor(values, shape, {.dtype = dtypes[static_cast<std::size_t>(draw(7))]});
    }
    Tree tree = kind == 1 ? Tree::list() : Tree::map();
    for (std::int64_t n = 1 + draw(3); n > 0; --n) {
        Tree member = random_tree(random, rows, depth - 1);
        kind == 1 ? tree.push_back(std::move(member)) : void(tree.set(str("key ", n), member));
    }
    return tree;
}

void expect_same_tree(const Tree& a, const Tree& b) {
    ASSERT_EQ(to_json(get_shape(a), -1), to_json(get_shape(b), -1));
    std::vector<Tensor> expected;
    for_each_tensor(b, [&](const Tensor& t) { expected.push_back(t); });
    std::size_t i = 0;
    for_each_tensor(a, [&](const Tensor& t) { expect_same_bits(t, expected.at(i++)); });
}

TEST(TreeCollectives, MatchResultsOnTheWholeBatchForRandomTrees) {
    for (const int size : {1, 2, 3})
        on_ranks(size, [&](const Group& group) {
            for (unsigned seed = 0; seed < 25; ++seed) {
                std::mt19937 random(seed);
                const std::int64_t rows = 1 + static_cast<std::int64_t>(random() % 4);
                const Tree whole = random_tree(random, rows * size, 3);
                const std::int64_t begin = rows * group->rank();
                const Tree mine = slice_tensors(whole, begin, begin + rows);
                expect_same_tree(dist::gather(*group, mine), whole);

                // Together, the results for two parts of the rows must have as many rows as the
                // result for all rows.
                const std::int64_t cut = rows / 2;
                const Tree first = slice_tensors(mine, 0, cut),
                           last = slice_tensors(mine, cut, rows);
                expect_same_tree(concatenate(std::vector{first, last}), mine);
                std::vector<Tree> parts;
                for (const Tree& part : {first, last}) parts.push_back(dist::gather(*group, part));
                EXPECT_EQ(find_batch_size(concatenate(parts)), rows * size);

                // The number of rows can differ between ranks.
                const std::int64_t own = 1 + (group->rank() + seed) % rows;
                const Tree ragged = slice_tensors(mine, 0, own);
                for (const bool at_start : {false, true}) {
                    const Tree padded = dist::pad_across_processes(*group, ragged, 0, 1, at_start);
                    const std::int64_t all = find_batch_size(padded);
                    EXPECT_GE(all, own);
                    expect_same_tree(at_start ? slice_tensors(padded, all - own, all)
                                              : slice_tensors(padded, 0, own),
                                     ragged);
                }
            }
        });
}

}  // namespace
}  // namespace axle
