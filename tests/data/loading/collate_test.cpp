#include "data/loading/collate.h"

#include <gtest/gtest.h>

#include "core/ops.h"
#include "data/dataset.h"

namespace axle::data {
namespace {

using Values = std::vector<double>;

template <class E>
std::string collate_error(const std::vector<Tree>& samples) {
    try {
        collate(samples);
    } catch (const E& error) {
        return error.what();
    }
    return "no error";
}

TEST(Collate, StacksTensorsAndKeepsTheirDType) {
    const std::vector<Tree> samples = {Tree{{"x", arange(3)}, {"y", arange(4).reshape({2, 2}).t()}},
                                       Tree{{"y", ones({2, 2}, {i64})}, {"x", arange(3)}}};
    const Tree batch = collate(samples);
    EXPECT_EQ(batch["x"].tensor().shape(), (Shape{2, 3}));
    EXPECT_EQ(batch["x"].tensor().dtype(), i64);
    EXPECT_EQ(batch["x"].tensor().to_vector(), (Values{0, 1, 2, 0, 1, 2}));
    EXPECT_EQ(batch["y"].tensor().to_vector(), (Values{0, 2, 1, 3, 1, 1, 1, 1}));
}

TEST(Collate, ConvertsNumbersToTensorsLikePyTorch) {
    const Tree batch =
        collate(std::vector<Tree>{Tree{{"i", 1}, {"f", 0.1}, {"m", 1}, {"b", true}},
                                  Tree{{"i", 2}, {"f", 0.2}, {"m", 0.5}, {"b", false}}});
    EXPECT_EQ(batch["i"].tensor().dtype(), i64);
    EXPECT_EQ(batch["f"].tensor().dtype(), f64);
    EXPECT_EQ(batch["m"].tensor().dtype(), f64);
    EXPECT_EQ(batch["b"].tensor().dtype(), boolean);
    EXPECT_EQ(batch["f"].tensor().to_vector(), (Values{0.1, 0.2}));
    EXPECT_EQ(batch["b"].tensor().to_vector(), (Values{1, 0}));
}

TEST(Collate, CollatesStringsListsAndNestedMembers) {
    const Tree batch =
        collate(std::vector<Tree>{Tree{{"name", "a"}, {"boxes", Tree::list({1, {{"k", 2}}})}},
                                  Tree{{"name", "b"}, {"boxes", Tree::list({3, {{"k", 4}}})}}});
    EXPECT_EQ(batch["name"][1].string(), "b");
    EXPECT_EQ(batch["boxes"][0].tensor().to_vector(), (Values{1, 3}));
    EXPECT_EQ(batch["boxes"][1]["k"].tensor().to_vector(), (Values{2, 4}));
}

TEST(Collate, StacksTensorsWithoutElementsOrDimensions) {
    const Tree batch = collate(std::vector<Tree>{Tree{{"none", zeros({0, 2})}, {"one", ones({})}},
                                                 Tree{{"none", zeros({0, 2})}, {"one", ones({})}}});
    EXPECT_EQ(batch["none"].tensor().shape(), (Shape{2, 0, 2}));
    EXPECT_EQ(batch["one"].tensor().shape(), (Shape{2}));
}

TEST(Collate, ReportsKeyAndBothShapesIfShapesDiffer) {
    EXPECT_EQ(collate_error<ShapeError>({Tree{{"labels", ones({3})}}, Tree{{"labels", ones({3})}},
                                         Tree{{"labels", ones({4})}}}),
              "collate: labels: different shapes: [3] and [4] (samples 0 and 2 of the batch); "
              "padding_collate() "
              "pads dimension 0");
    EXPECT_EQ(collate_error<ShapeError>({ones({3}), ones({1, 3})}),
              "collate: different shapes: [3] and [1, 3] (samples 0 and 1 of the batch); "
              "padding_collate() pads dimension 0");
}

TEST(Collate, RejectsTensorsWithTheMaximumNumberOfDimensions) {
    EXPECT_EQ(collate_error<ShapeError>({ones({1, 1, 1, 1, 1, 1, 1, 1})}),
              "collate: cannot stack tensors with the maximum number of dimensions: [1, 1, 1, 1, "
              "1, 1, 1, 1]");
}

TEST(Collate, RejectsEmptyBatchesNullsAndDifferentStructures) {
    EXPECT_EQ(collate_error<ValueError>({}),
              "collate: the batch must have at least one sample: it has none");
    EXPECT_EQ(collate_error<ValueError>({Tree{{"a", {{"x", 1}}}}, Tree{{"a", {{"y", 1}}}}}),
              "collate: a: only one of two samples has the key 'y' (samples 0 and 1 of the batch)");
    EXPECT_EQ(collate_error<ValueError>({Tree{{"a", 1}, {"b", 1}}, Tree{{"a", 1}}}),
              "collate: only one of two samples has the key 'b' (samples 0 and 1 of the batch)");
    EXPECT_EQ(collate_error<ValueError>({Tree{{"a", 1}}, Tree{{"a", "x"}}}),
              "collate: a: different kinds: 1 and \"x\" (samples 0 and 1 of the batch)");
    EXPECT_EQ(collate_error<ValueError>({Tree{{"a", Tree::list({1})}}, Tree{{"a", Tree::list()}}}),
              "collate: a: lists of different lengths: 1 and 0 (samples 0 and 1 of the batch)");
    EXPECT_EQ(collate_error<ValueError>({Tree{{"a", ones({1})}}, Tree{{"a", ones({1}, {f64})}}}),
              "collate: a: different dtypes: float32 and float64 (samples 0 and 1 of the batch)");
    EXPECT_EQ(collate_error<ValueError>({Tree{{"a", {}}}}),
              "collate: a: sample 0 of the batch is null");
}

TEST(TensorDataset, ReturnsRowsAndBatchesAndRejectsInvalidIndicesAndTensors) {
    const TensorDataset dataset(
        Tree{{"x", arange(6).reshape({3, 2})}, {"y", arange(6).reshape({2, 3}).t()}});
    EXPECT_EQ(dataset.size(), 3);
    EXPECT_EQ(dataset.get(1)["x"].tensor().to_vector(), (Values{2, 3}));
    const std::vector<std::int64_t> rows = {2, 0};
    const Tree batch = dataset.get_batch(rows);
    EXPECT_EQ(batch["x"].tensor().to_vector(), (Values{4, 5, 0, 1}));
    EXPECT_EQ(batch["y"].tensor().to_vector(), (Values{2, 5, 0, 3}));
    EXPECT_THROW(dataset.get(3), IndexError);
    EXPECT_THROW(dataset.get_batch(std::vector<std::int64_t>{-1}), IndexError);
    EXPECT_THROW(TensorDataset(Tree{{"x", ones({2})}, {"y", ones({3})}}), ShapeError);
    EXPECT_THROW(TensorDataset(Tree{{"x", ones({})}}), ShapeError);
    EXPECT_THROW(TensorDataset(Tree{{"x", 1}}), ValueError);
}

TEST(RethrowFrom, KeepsTypeOfAxleErrorsAndNestsOtherExceptions) {
    const auto rethrow = [](auto error) {
        try {
            throw error;
        } catch (...) {
            rethrow_from("sample 3");
        }
    };
    EXPECT_THROW(rethrow(FileError("x")), FileError);
    EXPECT_THROW(rethrow(UsageError("x")), UsageError);
    try {
        rethrow(OutOfMemory("x", 1, 2, 3, 4));
    } catch (const OutOfMemory& e) {
        EXPECT_STREQ(e.what(), "sample 3: x");
        EXPECT_EQ(e.peak, 4);
    }
    try {
        rethrow(std::out_of_range("far"));
    } catch (const Error& e) {
        EXPECT_STREQ(e.what(), "sample 3: far");
        EXPECT_THROW(std::rethrow_if_nested(e), std::out_of_range);
    }
    EXPECT_THROW(rethrow(7), int);
}

}  // namespace
}  // namespace axle::data
