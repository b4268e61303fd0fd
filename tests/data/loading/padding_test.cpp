#include "data/loading/padding.h"

#include <gtest/gtest.h>

#include "core/ops.h"
#include "data/dataset.h"
#include "data/length_batches.h"
#include "data/loading/loader.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/vectors.h"

namespace axle::data {
namespace {

using tests::expect_error, tests::expect_same_bits;
using Values = std::vector<double>;

Shape shape_from(const nlohmann::json& sizes) {
    return Shape(std::span<const std::int64_t>(sizes.get<std::vector<std::int64_t>>()));
}

PaddingSide side_from(const nlohmann::json& c) {
    return c["padding_side"] == "left" ? PaddingSide::left : PaddingSide::right;
}

TEST(PadSequence, MatchesPyTorch) {
    const auto file = tests::golden_json("data.json");
    for (const auto& c : file["pad_sequence"])
        for (const bool strided : {false, true}) {
            std::vector<Tensor> sequences;
            std::int64_t first = 1;
            for (const auto& sizes : c["shapes"]) {
                const Shape shape = shape_from(sizes);
                Tensor sequence = arange(first, first + numel(shape)).reshape(shape);
                first += numel(shape);
                if (strided && shape.size() > 1)
                    sequence = sequence.transpose(0, 1).contiguous().transpose(0, 1);
                sequences.push_back(sequence);
            }
            const Tensor batch =
                pad_sequence(sequences, {.batch_first = c["batch_first"].get<bool>(),
                                         .padding_value = c["padding_value"].get<double>(),
                                         .padding_side = side_from(c)});
            EXPECT_EQ(batch.dtype(), i64);
            EXPECT_TRUE(batch.is_contiguous());
            EXPECT_EQ(batch.shape(), shape_from(c["shape"])) << c;
            EXPECT_EQ(batch.to_vector(), c["values"].get<Values>()) << c;
        }
}

TEST(PadSequence, IsDifferentiable) {
    for (const PaddingSide side : {PaddingSide::right, PaddingSide::left}) {
        const Tensor a = ones({2}, {.requires_grad = true}), b = ones({3}, {.requires_grad = true});
        const Tensor batch =
            pad_sequence({a, b}, {.batch_first = true, .padding_value = 5, .padding_side = side});
        EXPECT_EQ(batch.to_vector(), side == PaddingSide::right ? (Values{1, 1, 5, 1, 1, 1})
                                                                : (Values{5, 1, 1, 1, 1, 1}));
        (batch * arange(6).reshape({2, 3})).sum().backward();
        EXPECT_EQ(a.grad().to_vector(),
                  side == PaddingSide::right ? (Values{0, 1}) : (Values{1, 2}));
        EXPECT_EQ(b.grad().to_vector(), (Values{3, 4, 5}));
    }
}

TEST(PadSequence, RejectsInvalidSequences) {
    expect_error<ValueError>({"pad_sequence: needs at least one sequence"},
                             [] { pad_sequence({}); });
    expect_error<ShapeError>({"pad_sequence: ", "sequence 1 is 0-d"}, [] {
        pad_sequence({ones({2}), ones({})});
    });
    expect_error<ShapeError>({"pad_sequence: ", "[2, 3]", "sequence 1 is [2, 4]"}, [] {
        pad_sequence({ones({2, 3}), ones({2, 4})});
    });
    expect_error<ShapeError>({"pad_sequence: ", "[2]", "sequence 1 is [2, 4]"}, [] {
        pad_sequence({ones({2}), ones({2, 4})});
    });
    expect_error<DTypeError>({"pad_sequence: ", "float32", "sequence 1 is int64"}, [] {
        pad_sequence({ones({2}), arange(2)});
    });
    expect_error<ShapeError>({"pad_sequence: ", "[1, 1, 1, 1, 1, 1, 1, 1]"}, [] {
        pad_sequence({ones({1, 1, 1, 1, 1, 1, 1, 1})});
    });
}

TEST(PaddingCollate, PadsTensorsAndCollatesOtherMembers) {
    const std::vector<Tree> samples = {
        Tree{{"ids", arange(2)}, {"n", 1}, {"name", "a"}, {"score", full({}, 0.5)}},
        Tree{{"ids", arange(3)}, {"n", 2}, {"name", "b"}, {"score", full({}, 1.5)}}};
    const Tree batch = padding_collate({.padding_value = 9})(samples);
    EXPECT_EQ(batch["ids"].shape(), (Shape{2, 3}));
    EXPECT_EQ(batch["ids"].tensor().to_vector(), (Values{0, 1, 9, 0, 1, 2}));
    EXPECT_EQ(batch["n"].tensor().to_vector(), (Values{1, 2}));
    EXPECT_EQ(batch["name"][1].string(), "b");
    EXPECT_EQ(batch["score"].tensor().to_vector(), (Values{0.5, 1.5}));
}

TEST(PaddingCollate, UsesPaddingValuesOfSingleMembers) {
    const auto made = [](std::int64_t n) {
        return Tree{{"ids", arange(n)},
                    {"labels", arange(n)},
                    {"more", Tree::list({{{"mask", ones({n})}}})}};
    };
    const std::vector<Tree> samples = {made(1), made(2)};
    const Tree batch = padding_collate({.padding_value = 7,
                                        .padding_values = {{"labels", -100}, {"more[0].mask", 0}},
                                        .padding_side = PaddingSide::left})(samples);
    EXPECT_EQ(batch["ids"].tensor().to_vector(), (Values{7, 0, 0, 1}));
    EXPECT_EQ(batch["labels"].tensor().to_vector(), (Values{-100, 0, 0, 1}));
    EXPECT_EQ(batch["more"][0]["mask"].tensor().to_vector(), (Values{0, 1, 1, 1}));
}

TEST(PaddingCollate, RoundsLengthsUpToAMultiple) {
    const auto length = [](std::int64_t longest) {
        const std::vector<Tree> samples = {Tree(ones({longest, 2})), Tree(ones({0, 2}))};
        return padding_collate({.pad_to_multiple_of = 8})(samples).size(1);
    };
    EXPECT_EQ(length(0), 0);
    EXPECT_EQ(length(1), 8);
    EXPECT_EQ(length(8), 8);
    EXPECT_EQ(length(9), 16);
}

TEST(PaddingCollate, RejectsInvalidSamplesAndOptions) {
    const auto collate_two = [](Tree a, Tree b, PaddingCollateOptions options = {}) {
        padding_collate(std::move(options))(std::vector<Tree>{std::move(a), std::move(b)});
    };
    expect_error<ShapeError>({"padding_collate: x: ", "[2, 3]", "[2, 4]", "samples 0 and 1"}, [&] {
        collate_two({{"x", ones({2, 3})}}, {{"x", ones({2, 4})}});
    });
    expect_error<ShapeError>({"padding_collate: x: ", "[]", "[2]"}, [&] {
        collate_two({{"x", ones({})}}, {{"x", ones({2})}});
    });
    expect_error<ValueError>({"padding_collate: x: ", "float32", "int64"}, [&] {
        collate_two({{"x", ones({2})}}, {{"x", arange(2)}});
    });
    expect_error<ShapeError>({"padding_collate: x: ", "[1, 1, 1, 1, 1, 1, 1, 1]"}, [&] {
        const Tensor most = ones({1, 1, 1, 1, 1, 1, 1, 1});
        collate_two({{"x", most}}, {{"x", most}});
    });
    expect_error<ValueError>({"padding_collate: ", "the key 'y'"}, [&] {
        collate_two({{"x", 1}}, {{"y", 1}});
    });
    expect_error<ValueError>({"padding_collate: the batch must have at least one sample"},
                             [] { padding_collate()({}); });
    expect_error<ValueError>({"padding_collate: ", "'label'", "'ids', 'labels'"}, [&] {
        const Tree same{{"ids", ones({2})}, {"labels", ones({2})}};
        collate_two(same, same, {.padding_values = {{"label", -100}}});
    });
    expect_error<ValueError>({"padding_collate: pad_to_multiple_of must be positive: 0"},
                             [] { padding_collate({.pad_to_multiple_of = 0}); });
}

TEST(PaddingCollate, PadsBatchesOfALoaderWithABudgetOfTokens) {
    const std::vector<std::int64_t> lengths = {3, 1, 2, 3, 4};
    DataLoader loader(
        from_function(
            5,
            [&](std::int64_t i) { return Tree(full({lengths[static_cast<std::size_t>(i)]}, i)); }),
        {.batch_sampler = std::make_shared<TokenBatchSampler>(
             lengths, 6, TokenBatchSamplerOptions{.shuffle = false}),
         .num_workers = 2,
         .collate_fn = padding_collate({.padding_value = -1})});
    std::vector<Values> batches;
    for (auto& batch : loader) batches.push_back(batch.tensor().to_vector());
    EXPECT_EQ(batches, (std::vector<Values>{{1, -1, 2, 2}, {0, 0, 0, 3, 3, 3}, {4, 4, 4, 4}}));
}

}  // namespace
}  // namespace axle::data
