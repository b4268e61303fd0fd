#include "core/tree/tree.h"

#include <cmath>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>

#include "core/ops.h"
#include "core/tree/large_integers.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_error;

template <class E, class F>
std::string error_of(F&& f) {
    try {
        f();
    } catch (const E& error) {
        return error.what();
    }
    return "no error";
}

std::string nested_lists(int depth) {
    const auto n = static_cast<std::size_t>(depth);
    return std::string(n, '[') + std::string(n, ']');
}

TEST(Tree, ReadsTensorsByKey) {
    const Tensor ids = arange(6);
    const Tree batch{{"input_ids", ids}, {"labels", ones({2})}};
    const Tensor& got = batch["input_ids"];
    EXPECT_TRUE(got.is_same(ids));
    EXPECT_EQ(sum(batch["labels"]).item(), 2);
    EXPECT_EQ((batch["labels"] * 3.0).to_vector(), (std::vector<double>{3, 3}));
    EXPECT_EQ(batch.size(), 2u);
}

TEST(Tree, ConvertsNestedBracesToMapsAndVectorsToLists) {
    const Tree state{{"epoch", 3},
                     {"best", 0.5},
                     {"name", "adam"},
                     {"betas", Tree::list({0.9, 0.999})},
                     {"inner", {{"ok", true}, {"none", {}}}},
                     {"pair", {{"a", "b"}}}};
    EXPECT_EQ(state["epoch"].integer(), 3);
    EXPECT_EQ(state["epoch"].number(), 3.0);
    EXPECT_EQ(state["best"].number(), 0.5);
    EXPECT_EQ(state["name"].string(), "adam");
    EXPECT_EQ(state["betas"][1].number(), 0.999);
    EXPECT_TRUE(state["inner"]["ok"].boolean());
    EXPECT_TRUE(state["inner"]["none"].is_null());
    EXPECT_EQ(state["pair"]["a"].string(), "b");
    EXPECT_EQ(Tree({{"x", 1}, {"y", 2}}).size(), 2u);
    EXPECT_EQ(Tree(std::vector<Tree>{1, "x"}).size(), 2u);
    EXPECT_TRUE(Tree{state}.is_map());
    EXPECT_TRUE(Tree{1}.is_integer());
    EXPECT_EQ(Tree::list().size(), 0u);
    EXPECT_EQ(Tree::map().size(), 0u);
}

TEST(Tree, ListsExistingKeysWhenKeyIsMissing) {
    const Tree batch{{"input_ids", 1}, {"labels", 2}};
    EXPECT_EQ(error_of<IndexError>([&] { batch["label"]; }),
              "Tree: no key 'label'; existing keys: 'input_ids', 'labels'");
    EXPECT_EQ(error_of<IndexError>([&] { Tree::map()["x"]; }),
              "Tree: no key 'x'; existing keys: none; to add a key, call set(key, value)");
    EXPECT_EQ(batch.find("label"), nullptr);
    EXPECT_TRUE(batch.contains("labels"));
}

TEST(Tree, ReportsActualKindOnMismatchAndRejectsInvalidIndicesAndNumbers) {
    const Tree batch{{"labels", "cat"}};
    EXPECT_EQ(error_of<ValueError>([&] { batch["labels"].tensor(); }),
              "Tree: expected a tensor, got a string ('cat')");
    EXPECT_EQ(error_of<ValueError>([&] { const Tensor &t = batch, u = t; }),
              "Tree: expected a tensor, got a map with keys 'labels'");
    EXPECT_EQ(error_of<ValueError>([&] { Tree(1.5).integer(); }),
              "Tree: expected an integer, got a number");
    EXPECT_THROW(Tree(1).boolean(), ValueError);
    EXPECT_THROW(Tree(1).size(), ValueError);
    EXPECT_THROW(Tree::list({1})[1], IndexError);
    EXPECT_THROW(Tree::list({1})[-1], IndexError);
    EXPECT_THROW(Tree(UINT64_MAX), ValueError);
}

TEST(Tree, KeepsInsertionOrderOfKeysAndRejectsDuplicatesInBraces) {
    Tree tree;
    tree.set("b", 1);
    tree.set("a", 2);
    tree.set("b", 3);
    tree["a"] = "two";
    std::string keys;
    for (const auto& [key, value] : tree.entries()) keys += key;
    EXPECT_EQ(keys, "ba");
    EXPECT_EQ(tree["b"].integer(), 3);
    EXPECT_EQ(tree["a"].string(), "two");
    EXPECT_THROW((Tree{{"a", 1}, {"a", 2}}), ValueError);
    Tree list;
    list.push_back(1);
    list.push_back(tree);
    EXPECT_EQ(list[1]["b"].integer(), 3);
    EXPECT_THROW(list.set("a", 1), ValueError);
}

TEST(Tree, TreatsUndefinedTensorAsNull) { EXPECT_TRUE(Tree(Tensor()).is_null()); }

TEST(MapTensors, ReplacesOnlyTensors) {
    const Tree tree{{"x", ones({2})}, {"rest", Tree::list({zeros({3}), "text", 4})}};
    const Tree doubled = map_tensors(tree, [](const Tensor& t) { return t * 2.0 + 1.0; });
    EXPECT_EQ(sum(doubled["x"]).item(), 6);
    EXPECT_EQ(sum(doubled["rest"][0]).item(), 3);
    EXPECT_EQ(doubled["rest"][1].string(), "text");
    EXPECT_EQ(doubled["rest"][2].integer(), 4);
    int seen = 0;
    for_each_tensor(doubled, [&](const Tensor&) { ++seen; });
    EXPECT_EQ(seen, 2);
}

TEST(TreeJson, RoundTripsBitExactlyAndIsWrittenOnOneLineOrIndented) {
    const Tree state{{"tiny", 5e-324},
                     {"third", 1.0 / 3},
                     {"whole", 3.0},
                     {"minus", -0.0},
                     {"big", INT64_MIN},
                     {"text", "quote \" and \xc3\xa9\n"},
                     {"list", Tree::list({Tree(), true, Tree::map(), Tree::list()})}};
    for (const int indent : {-1, 0, 2}) {
        const Tree back = from_json(to_json(state, indent));
        EXPECT_EQ(back["tiny"].number(), 5e-324);
        EXPECT_EQ(back["third"].number(), 1.0 / 3);
        EXPECT_FALSE(back["whole"].is_integer());
        EXPECT_TRUE(std::signbit(back["minus"].number()));
        EXPECT_EQ(back["big"].integer(), INT64_MIN);
        EXPECT_EQ(back["text"].string(), state["text"].string());
        EXPECT_EQ(to_json(back, indent), to_json(state, indent));
    }
    EXPECT_EQ(to_json({{"lr", 0.1}, {"n", Tree::list({1, 2})}}, -1), R"({"lr": 0.1, "n": [1, 2]})");
    EXPECT_EQ(to_json({{"lr", 1e-3}}), "{\n  \"lr\": 0.001\n}");
}

TEST(TreeJson, RoundTripsNonFiniteNumbers) {
    const double infinity = std::numeric_limits<double>::infinity();
    const Tree back = from_json(to_json(Tree::list({infinity, -infinity, std::nan("")})));
    EXPECT_EQ(back[0].number(), infinity);
    EXPECT_EQ(back[1].number(), -infinity);
    EXPECT_TRUE(std::isnan(back[2].number()));
    EXPECT_THROW(Tree("inf").number(), ValueError);
}

TEST(TreeJson, RejectsTensorsAndInvalidUtf8) {
    EXPECT_EQ(error_of<ValueError>([] {
                  to_json(Tree{{"w", ones({2, 3})}});
              }),
              "to_json: tensors cannot be written as JSON: float32 [2, 3]; save tensors to "
              "safetensors");
    EXPECT_THROW(to_json("\xff"), ValueError);
}

TEST(TreeJson, RejectsInvalidJson) {
    EXPECT_NE(error_of<ValueError>([] { from_json("{\"a\": 1,\n \"b\": }"); }).find("line 2"),
              std::string::npos);
    for (const char* text :
         {"", "{", "[1,]", "nul", "{\"a\" 1}", "1 2", "\"\xff\"", "NaN", "1e999"})
        EXPECT_THROW(from_json(text), ValueError) << text;
    EXPECT_EQ(error_of<ValueError>([] { from_json(R"({"a": 1, "b": 2, "a": 3})"); }),
              "from_json: duplicate key: 'a'");
    EXPECT_EQ(error_of<ValueError>([] { from_json("[9223372036854775808]"); }),
              "from_json: an integer exceeds int64: 9223372036854775808");
    EXPECT_THROW(from_json("-99999999999999999999"), ValueError);
    const Tree rounded =
        from_json_with_large_integers("[1e3, 9223372036854775808, -99999999999999999999, 7]");
    EXPECT_EQ(rounded[1].number(), 0x1p63);
    EXPECT_EQ(rounded[2].number(), -1e20);
    EXPECT_EQ(rounded[3].integer(), 7);
    EXPECT_EQ(error_of<ValueError>([] {
                  from_json({"{}\0garbage", 10});
              }),
              "from_json: unexpected zero byte at offset 2");
    EXPECT_EQ(error_of<ValueError>([] { from_json(R"({"\u001b": 1, "\u001b": 2})"); }),
              R"(from_json: duplicate key: '\x1b')");
}

TEST(Tree, RejectsExcessiveNesting) {
    EXPECT_EQ(error_of<ValueError>([] { from_json(nested_lists(1000000)); }),
              "from_json: the tree is nested deeper than 64 levels");
    EXPECT_EQ(to_json(from_json(nested_lists(64)), -1), nested_lists(64));
    EXPECT_THROW(from_json(nested_lists(65)), ValueError);
    Tree deep = 1;
    for (int i = 0; i < 65; ++i) deep = Tree::list({deep});
    EXPECT_THROW(to_json(deep), ValueError);
    EXPECT_THROW(map_tensors(deep, [](const Tensor& t) { return t; }), ValueError);
    EXPECT_THROW(for_each_tensor(deep, [](const Tensor&) {}), ValueError);
}

TEST(Tree, PrintsTensorsByDTypeAndShape) {
    std::ostringstream out;
    out << Tree{{"labels", zeros({8}, {i64})}, {"lr", 0.1}, {"n", Tree::list({1, "x"})}};
    EXPECT_EQ(out.str(), R"({"labels": int64 [8], "lr": 0.1, "n": [1, "x"]})");
}

TEST(Tree, PrintsControlCharactersAsEscapes) {
    std::ostringstream out;
    out << Tree::list({"a\x1b\x7f", "\xc2\x80\xc2\x9f\xc2\xa0", "\xc3\x84"});
    EXPECT_EQ(out.str(), "[\"a\\u001b\\u007f\", \"\\u0080\\u009f\xc2\xa0\", \"\xc3\x84\"]");
}

TEST(Tree, ForwardsPropertiesOfItsTensorAndRejectsOtherKinds) {
    const Tree batch{{"x", zeros({2, 3})}, {"n", 4}};
    EXPECT_EQ(batch["x"].shape(), (Shape{2, 3}));
    EXPECT_EQ(batch["x"].size(-1), 3);
    EXPECT_EQ(batch["x"].dim(), 2);
    EXPECT_EQ(batch["x"].numel(), 6);
    EXPECT_EQ(batch["x"].dtype(), f32);
    EXPECT_EQ(batch["x"].device(), Device::cpu());
    EXPECT_EQ(batch["x"].to(f64).dtype(), f64);
    EXPECT_TRUE(batch["x"].to(Device::meta()).device().is_meta());
    EXPECT_EQ(batch.size(), 2U);
    expect_error<ValueError>({"Tree: expected a tensor", "an integer"},
                             [&] { batch["n"].size(0); });
    expect_error<ValueError>({"Tree: expected a tensor", "a map with keys", "x", "n"},
                             [&] { batch.to(Device::cpu()); });
}

TEST(Tree, BindsTwoTensorsToTwoNames) {
    Tree batch{{"x", zeros({2})}, {"y", ones({3})}};
    auto& [x, y] = batch;
    EXPECT_EQ(&x, &batch["x"].tensor());
    EXPECT_EQ(&y, &batch["y"].tensor());
    x = full({4}, 5.0);  // replaces the tensor in the batch
    EXPECT_EQ(batch["x"].numel(), 4);

    const Tree list = Tree::list({zeros({2}), ones({3})});
    const auto& [first, second] = list;
    static_assert(std::is_same_v<decltype(first), const Tensor>);
    EXPECT_EQ(&second, &list[1].tensor());

    auto [a, b] = Tree(batch);
    EXPECT_TRUE(a.is_same(x));
    EXPECT_TRUE(b.is_same(y));
}

TEST(Tree, ReturnsGivenNumberOfTensors) {
    const Tree batch{{"ids", zeros({2})}, {"mask", ones({2})}, {"labels", zeros({1})}};
    const auto [ids, mask, labels] = batch.tensors<3>();
    EXPECT_TRUE(ids.is_same(batch["ids"].tensor()));
    EXPECT_TRUE(labels.is_same(batch["labels"].tensor()));
    EXPECT_TRUE(Tree::list({batch["mask"]}).tensors<1>()[0].is_same(mask));
}

TEST(Tree, ListsEntriesIfStructuredBindingFails) {
    const Tree one{{"x", zeros({2})}}, mixed{{"x", zeros({2})}, {"n", 3}};
    const Tree three = Tree::list({zeros({1}), zeros({1}), "text"});
    expect_error<ValueError>({"Tree: expected a list or map of 2 tensors", "a map of ", "x"},
                             [&] { [[maybe_unused]] auto& [x, y] = one; });
    expect_error<ValueError>({"Tree: ", "2 tensors", "x", "a tensor", "n", "an integer"},
                             [&] { [[maybe_unused]] auto& [x, y] = mixed; });
    expect_error<ValueError>({"Tree: ", "3 tensors", "a list of a tensor, a tensor, a string"},
                             [&] { three.tensors<3>(); });
    expect_error<ValueError>({"Tree: ", "2 tensors", "a tensor"},
                             [&] { Tree(zeros({2})).tensors<2>(); });
}

TEST(Tree, ExplainsHowToIndexATensor) {
    Tree batch{{"ids", arange(3)}, {"n", 3}};
    expect_error<ValueError>(
        {"Tree: expected a list, got a tensor", "; to index the tensor, write tree.tensor()[0]"},
        [&] { batch["ids"][0]; });
    expect_error<ValueError>({"Tree: expected a list, got an integer"}, [&] { batch["n"][0]; });
    EXPECT_EQ(batch["ids"].tensor()[1].item(), 1);
}

TEST(Tree, ReturnsElementsAndEntriesOfTemporariesByValue) {
    double sum = 0;
    for (const Tree& element : Tree(Tree::list({1, 2, 3})).elements()) sum += element.number();
    for (const auto& [key, value] : Tree{{"a", 10}, {"b", 20}}.entries()) sum += value.number();
    EXPECT_EQ(sum, 36);
}

}  // namespace
}  // namespace axle
