#include "core/tree/tree_utils.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/ops.h"
#include "tests/close.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using tests::expect_error;
using tests::expect_same_bits;

std::string text_of(const Tree& tree) { return to_json(tree, -1); }

Tensor counting(const Shape& shape) { return arange(numel(shape)).to(f32).reshape(shape); }

Tree nested_batch() {
    return {{"ids", counting({4, 2})},
            {"meta", Tree::list({"name", counting({4}), {{"deep", counting({4, 1, 3})}}})}};
}

Tree deep(int levels) {
    Tree tree = ones({1});
    for (int i = 0; i < levels; ++i) tree = Tree::list({tree});
    return tree;
}

// Covers 13.recursively_apply.
TEST(RecursivelyApply, KeepsContainersAndUnselectedLeaves) {
    const Tree doubled = recursively_apply([](const Tensor& t) { return t * 2.0; }, nested_batch());
    expect_same_bits(doubled["ids"], counting({4, 2}) * 2.0);
    expect_same_bits(doubled["meta"][2]["deep"], counting({4, 1, 3}) * 2.0);
    EXPECT_EQ(doubled["meta"][0].string(), "name");
    EXPECT_EQ(text_of(recursively_apply([](const Tree& t) { return Tree(t.integer() + 1); },
                                        Tree::list({1, "two", {{"x", 3}}}),
                                        [](const Tree& t) { return t.is_integer(); })),
              R"([2, "two", {"x": 4}])");
}

// Covers 13.recursively_apply.
TEST(RecursivelyApply, RejectsDeepTreesAndUnselectedLeavesOnRequestWithTheirPaths) {
    const auto same = [](const Tree& t) { return t; };
    const auto is_tensor = [](const Tree& t) { return t.is_tensor(); };
    expect_error<ValueError>({"recursively_apply: ", R"(batch["meta"][0] is a string)"},
                             [&] { recursively_apply(same, nested_batch(), is_tensor, true); });
    expect_error<ValueError>({"recursively_apply: batch is an integer"},
                             [&] { recursively_apply(same, 3, is_tensor, true); });
    const Tree with_null{{"x", ones({1})}, {"y", {}}};
    EXPECT_TRUE(recursively_apply(same, with_null, is_tensor, true)["y"].is_null());
    EXPECT_NO_THROW(recursively_apply(same, deep(kMaxTreeDepth)));
    expect_error<ValueError>({"recursively_apply: the tree is nested deeper than 64 levels"},
                             [&] { recursively_apply(same, deep(kMaxTreeDepth + 1)); });
}

// Covers 13.concatenate.
TEST(Concatenate, ConcatenatesTensorsInMapsAndLists) {
    const Tree all = concatenate({slice_tensors(Tree{{"x", counting({5, 2})}}, 0, 2),
                                  slice_tensors(Tree{{"x", counting({5, 2})}}, 2, 5)});
    expect_same_bits(all["x"], counting({5, 2}));
    const Tree wide = concatenate(
        std::vector<Tree>{Tree::list({counting({2, 1})}), Tree::list({counting({2, 3})})}, -1);
    EXPECT_EQ(wide[0].tensor().shape(), Shape({2, 4}));
    EXPECT_EQ(text_of(concatenate(std::vector<Tree>{Tree{{"x", "alone"}}})), R"({"x": "alone"})");
}

TEST(Concatenate, ReportsPathOfMismatch) {
    const auto concatenating = [](const Tree& a, const Tree& b, std::int64_t dim = 0) {
        return [=] { concatenate(std::vector<Tree>{a, b}, dim); };
    };
    const Tree x{{"x", Tree::list({counting({2, 3})})}};
    expect_error<ValueError>({"concatenate: needs at least 1 tree: the list is empty"},
                             [] { concatenate(std::vector<Tree>()); });
    expect_error<ValueError>(
        {R"(concatenate: batch["x"] is a string, not a tensor)", "cannot be merged from 2 items"},
        concatenating(Tree{{"x", "a"}}, Tree{{"x", "a"}}));
    expect_error<ValueError>(
        {R"(concatenate: batch["x"] is a list in item 0 and a tensor in item 1)"},
        concatenating(x, Tree{{"x", ones({2})}}));
    expect_error<ValueError>(
        {R"(concatenate: the numbers of members of batch["x"] differ: 1 in item 0 and 2 in item 1)"},
        concatenating(x, Tree{{"x", Tree::list({1, 2})}}));
    expect_error<ValueError>({R"(concatenate: batch["x"] is missing in item 1)"},
                             concatenating(x, Tree{{"y", 1}}));
    expect_error<ShapeError>(
        {R"(concatenate: the shape of batch["x"][0] differs outside dimension 0)",
         "[2, 3] in item 0", "[2, 4] in item 1"},
        concatenating(x, Tree{{"x", Tree::list({counting({2, 4})})}}));
    expect_error<ShapeError>({R"(concatenate: batch["x"][0] has no dimension 2)"},
                             concatenating(x, x, 2));
    expect_error<ShapeError>({"concatenate: batch has no dimension 0: it is []"},
                             concatenating(ones({}), ones({})));
    expect_error<DeviceError>({"concatenate: batch is on cpu in item 0 and on meta in item 1"},
                              concatenating(ones({2}), ones({2}, {.device = Device::meta()})));
}

// Covers 13.slice_tensors.
TEST(SliceTensors, SlicesRowsLikePythonAndRejects0dTensors) {
    const Tree middle = slice_tensors(nested_batch(), 1, 3);
    expect_same_bits(middle["ids"], counting({4, 2}).slice(0, 1, 3));
    EXPECT_EQ(middle["meta"][2]["deep"].tensor().shape(), Shape({2, 1, 3}));
    EXPECT_EQ(middle["meta"][0].string(), "name");
    EXPECT_EQ(find_batch_size(slice_tensors(nested_batch(), -1, 100)), 1);
    EXPECT_EQ(find_batch_size(slice_tensors(nested_batch(), 3, 1)), 0);
    expect_error<ShapeError>({R"(slice_tensors: batch["loss"] is 0-d)"}, [] {
        slice_tensors(Tree{{"loss", ones({})}}, 0, 1);
    });
}

// Covers 13.find_batch_size, 13.ignorant_find_batch_size.
TEST(FindBatchSize, ReturnsSizeOfFirstDimensionAndRejectsBatchesWithoutRows) {
    EXPECT_EQ(find_batch_size(nested_batch()), 4);
    EXPECT_EQ(find_batch_size(Tree{{"absent", {}}, {"x", counting({3})}}), 3);
    expect_error<ValueError>({"find_batch_size: batch is a list without a tensor"},
                             [] { find_batch_size(Tree::list()); });
    expect_error<ValueError>({R"(find_batch_size: batch["x"] is a map without a tensor)"}, [] {
        find_batch_size(Tree{{"x", Tree::map()}, {"y", ones({2})}});
    });
    expect_error<ValueError>({"find_batch_size: batch[0] is a string, not a tensor"}, [] {
        find_batch_size(Tree::list({"a", ones({2})}));
    });
    expect_error<ValueError>({"find_batch_size: batch is null, not a tensor"},
                             [] { find_batch_size(Tree()); });
    expect_error<ValueError>({"find_batch_size: batch[0] is 0-d"},
                             [] { find_batch_size(Tree::list({ones({})})); });
    EXPECT_EQ(ignorant_find_batch_size(nested_batch()), 4);
    for (const Tree& no_batch : {Tree::list(), Tree("a"), Tree(ones({})), Tree()})
        EXPECT_EQ(ignorant_find_batch_size(no_batch), std::nullopt);
}

// Covers 13.find_device.
TEST(FindDevice, ReturnsDeviceOfFirstTensor) {
    EXPECT_EQ(find_device(nested_batch()), Device::cpu());
    EXPECT_EQ(find_device(get_data_structure(nested_batch())), Device::meta());
    const Tree on_meta = get_data_structure(nested_batch());
    EXPECT_EQ(find_device(Tree::list({on_meta, nested_batch()})), Device::meta());
    EXPECT_EQ(find_device(Tree::list({nested_batch(), on_meta})), Device::cpu());
    EXPECT_EQ(find_device(Tree::list({1, "a"})), std::nullopt);
}

// Covers 13.send_to_device.
TEST(SendToDevice, SkipsGivenKeys) {
    const Tree sent = send_to_device(
        Tree{{"x", ones({2})}, {"y", {{"x", ones({3})}, {"z", ones({4})}}}, {"name", "a"}},
        Device::meta(), false, {"x"});
    EXPECT_EQ(sent["x"].tensor().device(), Device::cpu());
    EXPECT_EQ(sent["y"]["x"].tensor().device(), Device::cpu());
    EXPECT_EQ(sent["y"]["z"].tensor().device(), Device::meta());
    EXPECT_EQ(sent["name"].string(), "a");
}

// Covers 13.convert_to_fp32.
TEST(ConvertToFp32, ConvertsOnlyHalfPrecision) {
    for (const DType dtype : {f64, f32, f16, bf16, i64, boolean}) {
        const Tensor x = ones({2}, {.dtype = dtype});
        const Tree converted = convert_to_fp32(Tree::list({x, 1}));
        EXPECT_EQ(converted[0].tensor().dtype(), is_half(dtype) ? f32 : dtype);
        EXPECT_EQ(converted[0].tensor().is_same(x), !is_half(dtype));
        EXPECT_EQ(converted[1].integer(), 1);
    }
}

// Covers 13.get_data_structure, 13.get_shape, 13.initialize_tensors.
TEST(GetDataStructure, DescribesTensorsForInitializeTensors) {
    Tree batch = nested_batch();
    batch.set("flags", ones({0, 2}, {.dtype = boolean}));
    const Tree empties = initialize_tensors(get_data_structure(batch));
    EXPECT_EQ(text_of(get_shape(empties)), text_of(get_shape(batch)));
    EXPECT_EQ(text_of(get_shape(batch)),
              R"({"ids": [4, 2], "meta": ["name", [4], {"deep": [4, 1, 3]}], "flags": [0, 2]})");
    EXPECT_EQ(empties["flags"].tensor().dtype(), boolean);
    EXPECT_EQ(empties["ids"].tensor().device(), Device::cpu());
}

// Covers 13.listify.
TEST(Listify, ConvertsTensorsToNestedListsOfBoolsIntegersOrFloats) {
    EXPECT_EQ(text_of(listify(Tree{{"i", arange(4).reshape({2, 2})},
                                   {"b", tensor({1, 0}, {2}, {.dtype = boolean})},
                                   {"u", tensor({255}, {1}, {.dtype = u8})},
                                   {"h", tensor({0.5, -2}, {2}, {.dtype = bf16})},
                                   {"scalar", tensor({3}, {}, {.dtype = i64})},
                                   {"empty", ones({2, 0})},
                                   {"name", "a"}})),
              R"({"i": [[0, 1], [2, 3]], "b": [true, false], "u": [255], "h": [0.5, -2.0], )"
              R"("scalar": 3, "empty": [[], []], "name": "a"})");
    const std::int64_t large = (std::int64_t{1} << 53) + 1;
    EXPECT_EQ(listify(tensor(std::vector<std::int64_t>{large}, {1}))[0].integer(), large);
}

TEST(PadInputTensors, RepeatsLastRow) {
    const Tree padded =
        pad_input_tensors(Tree{{"x", counting({3, 2})}, {"y", Tree::list({arange(3)})}}, 3, 2);
    EXPECT_EQ(text_of(listify(padded)),
              R"({"x": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [4.0, 5.0]], "y": [[0, 1, 2, 2]]})");
    EXPECT_EQ(text_of(listify(pad_input_tensors(counting({1, 2}), 2, 4, -1))),
              "[[0.0, 1.0, 1.0, 1.0]]");
    EXPECT_EQ(find_batch_size(pad_input_tensors(counting({0, 2}), 0, 4)), 0);
}

TEST(PadInputTensors, RejectsInvalidArguments) {
    expect_error<ShapeError>(
        {R"(pad_input_tensors: dimension 0 of batch["y"] must have size 3: its shape is [2])"}, [] {
            pad_input_tensors(Tree{{"x", counting({3, 2})}, {"y", arange(2)}}, 3, 2);
        });
    expect_error<ShapeError>(
        {"pad_input_tensors: dimension 0 of batch must have size 1: its shape is []"},
        [] { pad_input_tensors(ones({}), 1, 2); });
    expect_error<ValueError>({"pad_input_tensors: batch[0] is a string, not a tensor"},
                             [] { pad_input_tensors(Tree::list({"a"}), 3, 2); });
    expect_error<ValueError>({"pad_input_tensors: ", "num_processes 0"},
                             [] { pad_input_tensors(arange(3), 3, 0); });
}

// Covers 13.pad_input_tensors.
TEST(PadInputTensors, MatchesAccelerateExceptForDocumentedDifferences) {
    const auto file = tests::vectors("pad_input_tensors.json");
    for (const auto& c : file["cases"]) {
        const auto batch = c["batch"].get<std::int64_t>();
        const auto processes = c["num_processes"].get<int>();
        const auto upstream = c["out_batch"].get<std::int64_t>();
        const Tensor padded = pad_input_tensors(arange(batch), batch, processes);
        const std::int64_t rows = padded.size(0);
        // Accelerate computes a wrong size in some cases (see tests/vectors/README.md).
        const bool next_multiple = upstream % processes == 0 && upstream - batch < processes;
        if (next_multiple) {
            EXPECT_EQ(rows, upstream) << c;
        } else {
            EXPECT_EQ(rows % processes, 0) << c;
            EXPECT_LT(rows - batch, processes) << c;
        }
        for (std::int64_t i = 0; i < rows; ++i)
            EXPECT_EQ(padded[i].item(), std::min(i, batch - 1)) << c;
    }
}

}  // namespace
}  // namespace axle
