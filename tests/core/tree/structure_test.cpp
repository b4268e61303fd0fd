#include "core/tree/structure.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "core/ops.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_error;
using tests::expect_same_bits;

struct Box {
    Tensor corners;
    std::string label;
    template <class F>
    void visit(F&& f) {
        f("corners", corners), f("label", label);
    }
    template <class F>
    void visit(F&& f) const {
        f("corners", corners), f("label", label);
    }
};

struct Batch {
    Tensor ids;
    std::optional<Tensor> labels;
    std::vector<Box> boxes;
    std::int32_t step = 0;
    bool last = false;
    int not_visited = 0;
    template <class F>
    void visit(F&& f) {
        f("ids", ids), f("labels", labels), f("boxes", boxes), f("step", step), f("last", last);
    }
};

static_assert(Structured<Tree> && !StructuredType<Tree>);
static_assert(StructuredType<Batch> && StructuredType<Tensor> && StructuredType<std::vector<bool>>);
static_assert(!Structured<const char*> && !Structured<std::vector<void*>> && !Structured<char>);

Batch batch_of(std::int64_t rows) {
    return {.ids = arange(rows * 2).reshape({rows, 2}),
            .labels = arange(rows),
            .boxes = {{ones({rows, 4}), "cat"}, {zeros({rows, 4}), "dog"}},
            .step = 7,
            .last = true,
            .not_visited = 9};
}

TEST(ToTree, ConvertsStructToMapOfVisitedMembers) {
    const Tree tree = to_tree(batch_of(3));
    EXPECT_EQ(to_json(get_shape(tree), -1),
              R"({"ids": [3, 2], "labels": [3], "boxes": [{"corners": [3, 4], "label": "cat"}, )"
              R"({"corners": [3, 4], "label": "dog"}], "step": 7, "last": true})");
}

TEST(FromTree, ReplacesVisitedAndKeepsUnvisitedMembersOfStruct) {
    const Batch half = slice_tensors(batch_of(4), 0, 2);
    expect_same_bits(half.ids, arange(8).reshape({4, 2}).slice(0, 0, 2));
    EXPECT_EQ(half.labels->to_vector(), std::vector<double>({0, 1}));
    EXPECT_EQ(half.boxes.at(1).corners.shape(), Shape({2, 4}));
    EXPECT_EQ(half.boxes.at(1).label, "dog");
    EXPECT_EQ(half.step, 7);
    EXPECT_TRUE(half.last);
    EXPECT_EQ(half.not_visited, 9);
}

TEST(FromTree, KeepsAbsentMembersAbsentUnlessTheTreeHasThem) {
    Batch batch = batch_of(2);
    batch.labels.reset();
    EXPECT_TRUE(to_tree(batch)["labels"].is_null());
    EXPECT_FALSE(send_to_device(batch, Device::meta()).labels.has_value());
    EXPECT_TRUE(send_to_device(batch, Device::meta()).ids.device().is_meta());
    batch.ids = Tensor();
    EXPECT_FALSE(convert_to_fp32(batch).ids.defined());
    EXPECT_TRUE(from_tree(batch, to_tree(batch_of(2))).labels.has_value());
}

TEST(FromTree, KeepsContainerTypes) {
    using Named = std::map<std::string, std::pair<Tensor, std::string>>;
    const std::tuple<Named, std::array<Tensor, 2>, std::vector<bool>, double, std::uint8_t> value{
        {{"a", {ones({4}), "text"}}}, {ones({4}), zeros({4})}, {true, false, true}, 0.5, 200};
    const auto half = slice_tensors(value, 0, 2);
    static_assert(std::is_same_v<decltype(half), decltype(value)>);
    EXPECT_EQ(std::get<0>(half).at("a").first.shape(), Shape({2}));
    EXPECT_EQ(std::get<0>(half).at("a").second, "text");
    EXPECT_EQ(std::get<1>(half)[1].to_vector(), std::vector<double>({0, 0}));
    EXPECT_EQ(std::get<2>(half), std::vector<bool>({true, false, true}));
    EXPECT_EQ(std::get<3>(half), 0.5);
    EXPECT_EQ(std::get<4>(half), 200);
}

TEST(ToTree, SortsUnorderedMapsByKey) {
    std::unordered_map<std::string, int> values;
    for (const char* key : {"pear", "fig", "apple", "plum", "date"}) values[key] = 1;
    EXPECT_EQ(to_json(to_tree(values), -1),
              R"({"apple": 1, "date": 1, "fig": 1, "pear": 1, "plum": 1})");
    EXPECT_EQ(from_tree(values, to_tree(values)), values);
}

TEST(FromTree, ResizesVectors) {
    Batch like = batch_of(1);
    like.boxes.clear();
    EXPECT_EQ(from_tree(like, to_tree(batch_of(2))).boxes.size(), 2u);
    const std::vector<int> longer = from_tree(std::vector<int>{1}, Tree::list({1, 2, 3}));
    EXPECT_EQ(longer, (std::vector<int>{1, 2, 3}));
}

// A Tree supports structured bindings with two names. Functions on user-defined types must not
// treat it as a pair.
static_assert(!structure::IsProduct<Tree>);
static_assert(std::is_same_v<decltype(to_tree(std::declval<const Tree&>())), Tree>);

TEST(FromTree, RejectsOtherStructuresAndNumbersOutOfRange) {
    expect_error<ValueError>({"Tree: expected a tensor"}, [] { from_tree(Tensor(), Tree("a")); });
    expect_error<IndexError>({"Tree: no key 'ids'"}, [] {
        from_tree(batch_of(1), Tree{{"x", 1}});
    });
    expect_error<ValueError>({"from_tree: expected 2 elements, got 3"}, [] {
        from_tree(std::pair(1, 2), Tree::list({1, 2, 3}));
    });
    expect_error<ValueError>({"from_tree: 300 does not fit"},
                             [] { from_tree(std::uint8_t{1}, Tree(300)); });
    expect_error<ValueError>({"from_tree: -1 does not fit"},
                             [] { from_tree(std::uint64_t{1}, Tree(-1)); });
}

TEST(TreeUtilities, AcceptStructsAndContainers) {
    const Batch batch = batch_of(3);
    EXPECT_EQ(find_batch_size(batch), 3);
    EXPECT_EQ(ignorant_find_batch_size(std::string("a")), std::nullopt);
    EXPECT_EQ(find_device(batch), Device::cpu());
    EXPECT_EQ(concatenate(std::vector<Box>{{ones({1}), "a"}}).label, "a");
    EXPECT_EQ(concatenate(std::vector{arange(2), arange(3)}).shape(), Shape({5}));
    EXPECT_EQ(recursively_apply([](const Tensor& t) { return t * 2.0; }, batch).labels->to_vector(),
              std::vector<double>({0, 2, 4}));
    EXPECT_EQ(initialize_tensors(get_data_structure(batch)).ids.shape(), Shape({3, 2}));
    EXPECT_EQ(pad_input_tensors(std::vector{arange(3)}, 3, 2)[0].shape(), Shape({4}));
    EXPECT_EQ(to_json(listify(std::pair(arange(2), std::string("a"))), -1), R"([[0, 1], "a"])");
    EXPECT_EQ(to_json(get_shape(std::vector{ones({2, 1})}), -1), "[[2, 1]]");
}

}  // namespace
}  // namespace axle
