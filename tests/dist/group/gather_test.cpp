#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "dist/group/operations.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/dist/group/operations.h"

namespace axle {
namespace {

using dist::ProcessGroup;
using tests::expect_everywhere;
using tests::expect_same_bits;
using tests::json_of;
using tests::on_ranks;
using Group = std::shared_ptr<ProcessGroup>;

struct Batch {
    Tensor ids;
    std::optional<Tensor> labels;
    std::vector<std::pair<Tensor, Tensor>> pairs;
    template <class F>
    void visit(F&& f) {
        f("ids", ids), f("labels", labels), f("pairs", pairs);
    }
};

// Covers 3.gather, 13.gather.
TEST(Gather, ConcatenatesRowsOfEveryTensorInRankOrder) {
    on_ranks(3, [](const Group& group) {
        const int rank = group->rank();
        const Tree all =
            dist::gather(*group, {{"x", full({1, 2}, rank, {f32})},
                                  {"list", Tree::list({full({}, rank, {f32}), Tree()})},
                                  {"none", ones({0, 3})}});
        EXPECT_EQ(json_of(all), R"({"x": [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], )"
                                R"("list": [[0.0, 1.0, 2.0], null], "none": []})");
        EXPECT_EQ(all["none"].tensor().shape(), Shape({0, 3}));
    });
}

TEST(Gather, KeepsDTypesAndAcceptsStridedTensors) {
    on_ranks(2, [](const Group& group) {
        const double rank = group->rank();
        for (const DType dtype : {f64, f32, f16, bf16, i64, i32, u8, boolean}) {
            const Tensor x = tensor({rank, 1, 0, 1}, {2, 2}, {.dtype = dtype}).t();
            const Tensor all = dist::gather(*group, x);
            EXPECT_EQ(all.dtype(), dtype);
            expect_same_bits(all, tensor({0, 0, 1, 1, 1, 0, 1, 1}, {4, 2}, {.dtype = dtype}));
        }
        EXPECT_FALSE(dist::gather(*group, ones({2}, {.requires_grad = true})).requires_grad());
        EXPECT_EQ(dist::gather(*group, ones({1, 1, 1, 1, 1, 1, 1, 1})).size(0), 2);
    });
}

TEST(Gather, IgnoresOrderOfKeys) {
    on_ranks(2, [](const Group& group) {
        const Tensor a = full({1}, group->rank(), {f32}), b = full({1}, 10 + group->rank(), {f32});
        const Tree all = dist::gather(
            *group, group->rank() == 0 ? Tree{{"a", a}, {"b", b}} : Tree{{"b", b}, {"a", a}});
        EXPECT_EQ(all["a"].tensor().to_vector(), std::vector<double>({0, 1}));
        EXPECT_EQ(all["b"].tensor().to_vector(), std::vector<double>({10, 11}));
        EXPECT_EQ(all.entries()[0].key, group->rank() == 0 ? "a" : "b");
    });
}

TEST(Gather, ReturnsUserDefinedTypes) {
    on_ranks(2, [](const Group& group) {
        const Tensor mine = full({1}, group->rank(), {f32});
        const Batch all = dist::gather(*group, Batch{mine, {}, {{mine, mine * 2.0}}});
        EXPECT_EQ(all.ids.to_vector(), std::vector<double>({0, 1}));
        EXPECT_FALSE(all.labels);
        EXPECT_EQ(all.pairs.at(0).second.to_vector(), std::vector<double>({0, 2}));
        const std::tuple<Tensor, std::map<std::string, Tensor>> nested{mine, {{"x", mine}}};
        EXPECT_EQ(std::get<1>(dist::gather(*group, nested)).at("x").to_vector(),
                  std::vector<double>({0, 1}));
    });
}

TEST(Gather, ReturnsItsArgumentOnOneProcess) {
    const Group alone = ProcessGroup::alone();
    const Tensor scalar = ones({});
    EXPECT_TRUE(dist::gather(*alone, scalar).is_same(scalar));
    EXPECT_EQ(dist::gather(*alone, Tree("text")).string(), "text");
    EXPECT_EQ(dist::gather(*alone, 3), 3);
}

// Covers 13.verify_operation.
TEST(Gather, RejectsDifferentShapesAndListsThem) {
    expect_everywhere<ShapeError>(
        3,
        {R"(gather: batch["meta"][1] has different shapes: rank 0 [2, 3], rank 1 [4, 3], rank 2 [2, 3])",
         "pad_across_processes"},
        [](ProcessGroup& group) {
            dist::gather(
                group,
                Tree{{"meta", Tree::list({ones({1}), ones({group.rank() == 1 ? 4 : 2, 3})})}});
        });
    expect_everywhere<ShapeError>(2, {"rank 0 [], rank 1 [1]"}, [](ProcessGroup& group) {
        dist::gather(group, group.rank() == 0 ? ones({}) : ones({1}));
    });
}

TEST(Gather, RejectsDifferentDTypesAndMetaTensors) {
    expect_everywhere<DTypeError>(
        2, {R"(gather: batch["x"] has different dtypes: rank 0 float32, rank 1 int64)"},
        [](ProcessGroup& group) {
            dist::gather(group, Tree{{"x", ones({2}, {group.rank() == 0 ? f32 : i64})}});
        });
    expect_everywhere<DeviceError>(
        2, {"gather: batch is on different devices: rank 0 cpu, rank 1 meta"},
        [](ProcessGroup& group) {
            dist::gather(group,
                         ones({2}, {.device = group.rank() == 0 ? Device::cpu() : Device::meta()}));
        });
    expect_everywhere<DeviceError>(
        2, {"gather: batch is on the meta device"},
        [](ProcessGroup& group) { dist::gather(group, ones({2}, {.device = Device::meta()})); });
}

TEST(Gather, RejectsNonTensorsAndDifferentStructures) {
    expect_everywhere<ValueError>(
        2, {R"(gather: batch["meta"][1] is a string, not a tensor, on rank 1)"},
        [](ProcessGroup& group) {
            const Tree second = group.rank() == 0 ? Tree(ones({1})) : Tree("text");
            dist::gather(group, Tree{{"meta", Tree::list({ones({1}), second})}});
        });
    expect_everywhere<ValueError>(2, {"gather: batch is null, not a tensor, on rank 0"},
                                  [](ProcessGroup& group) { dist::gather(group, Tree()); });
    expect_everywhere<ValueError>(3,
                                  {R"(gather: the ranks' values differ in structure: batch["y"])",
                                   "exists on rank 2, not on rank 0"},
                                  [](ProcessGroup& group) {
                                      Tree batch{{"x", ones({1})}};
                                      if (group.rank() == 2) batch.set("y", ones({1}));
                                      dist::gather(group, batch);
                                  });
    expect_everywhere<ValueError>(
        2, {R"(batch["x"] exists on rank 0, not on rank 1)"}, [](ProcessGroup& group) {
            const Tensor x = ones({1});
            dist::gather(group, group.rank() == 0 ? Tree{{"x", x}} : Tree{{"x", Tree::list({x})}});
        });
    expect_everywhere<ValueError>(2, {"nested deeper than"}, [](ProcessGroup& group) {
        Tree deep = ones({1});
        for (int i = 0; i <= kMaxTreeDepth && group.rank() == 1; ++i) deep = Tree::list({deep});
        dist::gather(group, deep);
    });
}

// Covers 3.gather_object, 13.gather_object.
TEST(GatherObject, ConcatenatesLists) {
    on_ranks(3, [](const Group& group) {
        const int rank = group->rank();
        Tree mine = Tree::list();
        for (int i = 0; i < rank; ++i) mine.push_back(Tree::list({rank, "text"}));
        EXPECT_EQ(json_of(dist::gather_object(*group, mine)),
                  R"([[1, "text"], [2, "text"], [2, "text"]])");
        EXPECT_EQ(dist::gather_object(*group, std::vector<std::string>{str(rank)}),
                  (std::vector<std::string>{"0", "1", "2"}));
        EXPECT_EQ(dist::gather_object(*group, std::vector<int>()), std::vector<int>());
    });
}

// Covers 3.gather_object, 13.gather_object, 31.gather_object.
TEST(GatherObject, RecursesIntoMapsAndPairs) {
    on_ranks(2, [](const Group& group) {
        const int rank = group->rank();
        EXPECT_EQ(json_of(dist::gather_object(
                      *group, {{"ids", Tree::list({rank})}, {"more", {{"loss", 0.5 + rank}}}})),
                  R"({"ids": [0, 1], "more": {"loss": [0.5, 1.5]}})");
        const auto [names, lengths] = dist::gather_object(
            *group, std::pair(std::vector<std::string>{str("rank ", rank)}, std::vector{rank}));
        EXPECT_EQ(names, (std::vector<std::string>{"rank 0", "rank 1"}));
        EXPECT_EQ(lengths, (std::vector{0, 1}));
        const std::map<std::string, std::vector<int>> map{{"a", {rank}}};
        EXPECT_EQ(dist::gather_object(*group, map).at("a"), (std::vector{0, 1}));
    });
    EXPECT_EQ(json_of(dist::gather_object(*ProcessGroup::alone(), Tree{{"loss", 1}})),
              R"({"loss": 1})");
}

TEST(GatherObject, RejectsDifferentStructuresAndMetaTensors) {
    expect_everywhere<ValueError>(
        2,
        {R"(gather_object: a list or map must be one on all ranks: object["x"] is a list on rank 0 and an integer on rank 1)"},
        [](ProcessGroup& group) {
            dist::gather_object(group, Tree{{"x", group.rank() == 0 ? Tree::list({1}) : Tree(1)}});
        });
    expect_everywhere<ValueError>(
        2, {R"(gather_object: object["b"] exists on rank 1, not on rank 0)"},
        [](ProcessGroup& group) {
            dist::gather_object(group, group.rank() == 0 ? Tree{{"a", 1}} : Tree{{"b", 1}});
        });
    on_ranks(2, [](const Group& group) {
        const Tree bad = group->rank() == 0 ? Tree(1) : Tree(ones({1}, {.device = Device::meta()}));
        EXPECT_THROW(dist::gather_object(*group, bad), Error) << group->rank();
        group->barrier();
    });
}

}  // namespace
}  // namespace axle
