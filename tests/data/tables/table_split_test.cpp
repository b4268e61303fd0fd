// Tests tables that have some of the rows of another table: selections, shards and splits.
#include <algorithm>

#include <gtest/gtest.h>

#include "data/mt19937.h"
#include "data/tables/table.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/vectors.h"

namespace axle::data {
namespace {

using tests::expect_error;
using Ids = std::vector<std::int64_t>;

Table numbers(std::int64_t n) {
    std::vector<Tree> rows;
    for (std::int64_t i = 0; i < n; ++i) rows.push_back({{"id", i}});
    return Table::from_list(rows);
}

Ids ids(const Table& table) {
    Ids ids;
    for (const Tree& id : table.column("id")) ids.push_back(id.integer());
    return ids;
}

// Expects that the parts have all rows of a table together, each once.
void expect_divides(const std::vector<Table>& parts, std::int64_t n) {
    Ids all;
    for (const Table& part : parts) {
        const Ids some = ids(part);
        all.insert(all.end(), some.begin(), some.end());
    }
    std::ranges::sort(all);
    EXPECT_EQ(all, ids(numbers(n)));
}

TEST(Table, SelectsRowsAndRejectsIndicesOutOfRange) {
    const Table table = numbers(5).select({4, 0, 4, 2});
    EXPECT_EQ(ids(table), (Ids{4, 0, 4, 2}));
    EXPECT_EQ(ids(table.select({3, 0})), (Ids{2, 4}));
    expect_error<IndexError>({"Table: index 4 is out of range for 4 rows"},
                             [&] { table.select({4}); });
}

TEST(Table, ShufflesRowsInTheOrderOfRandperm) {
    EXPECT_EQ(ids(numbers(20).shuffle(7)), randperm(20, 7));
    EXPECT_NE(ids(numbers(20).shuffle(7)), ids(numbers(20).shuffle(8)));
}

TEST(Table, IsDividedIntoShardsAndRejectsIndicesOutOfRange) {
    EXPECT_EQ(ids(numbers(7).shard(3, 0)), (Ids{0, 1, 2}));
    EXPECT_EQ(ids(numbers(7).shard(3, 2)), (Ids{5, 6}));
    EXPECT_EQ(ids(numbers(7).shard(3, 1, false)), (Ids{1, 4}));
    for (const bool contiguous : {true, false})
        for (const std::int64_t n : {0, 1, 5, 6, 17}) {
            std::vector<Table> parts;
            for (std::int64_t i = 0; i < 4; ++i)
                parts.push_back(numbers(17).select(randperm(17, 1)).shard(4, i, contiguous));
            expect_divides(parts, 17);
            EXPECT_EQ(numbers(n).shard(1, 0, contiguous).size(), n);
        }
    expect_error<ValueError>({"shard: index must be in [0, num_shards): index 3, num_shards 3"},
                             [] { numbers(7).shard(3, 3); });
}

TEST(Table, HasTheSplitSizesOfHuggingFaceDatasets) {
    const auto file = tests::golden_json("tables.json");
    for (const auto& recorded : file["splits"]) {
        const auto n = recorded["n"].get<std::int64_t>();
        const auto& size = recorded["test_size"];
        const Scalar test_size = size.is_number_integer() ? Scalar(size.get<std::int64_t>())
                                                          : Scalar(size.get<double>());
        for (const bool shuffle : {true, false}) {
            const auto [train, test] =
                numbers(n).train_test_split({.test_size = test_size, .shuffle = shuffle});
            EXPECT_EQ(train.size(), recorded["train"].get<std::int64_t>());
            EXPECT_EQ(test.size(), recorded["test"].get<std::int64_t>());
            expect_divides({train, test}, n);
        }
    }
}

TEST(Table, IsSplitInAnOrderThatDependsOnTheSeedOrInRowOrderWithoutShuffle) {
    const auto split = [](std::uint64_t seed) {
        const auto [train, test] = numbers(50).train_test_split({.test_size = 10, .seed = seed});
        return std::pair(ids(train), ids(test));
    };
    EXPECT_EQ(split(1), split(1));
    EXPECT_NE(split(1), split(2));
    const auto [train, test] = numbers(4).train_test_split({.test_size = 1, .shuffle = false});
    EXPECT_EQ(ids(train), (Ids{0, 1, 2}));
    EXPECT_EQ(ids(test), Ids{3});
}

TEST(Table, HasStratifiedSplitsOfRowsWithTensors) {
    std::vector<Tree> rows;
    for (int i = 0; i < 20; ++i) rows.push_back({{"id", i}, {"label", i % 4 == 0}});
    const Table table = Table::from_list(rows).with_tensors();
    const auto [train, test] =
        table.train_test_split({.test_size = 0.4, .stratify_by_column = "label"});
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < test.size(); ++i) count += test.get(i)["label"].item() != 0;
    EXPECT_EQ(test.size(), 8);
    EXPECT_EQ(count, 2);
}

TEST(Table, IsSplitIntoTheClassSizesOfScikitLearn) {
    const auto file = tests::golden_json("tables.json");
    for (const auto& recorded : file["stratified"]) {
        const auto counts = recorded["counts"].get<Ids>();
        std::vector<Tree> rows;
        for (std::size_t label = 0; label < counts.size(); ++label)
            for (std::int64_t i = 0; i < counts[label]; ++i)
                rows.push_back({{"id", std::ssize(rows)}, {"label", str("class ", label)}});
        const auto& size = recorded["test_size"];
        const auto [train, test] = Table::from_list(rows).train_test_split(
            {.test_size = size.is_number_integer() ? Scalar(size.get<std::int64_t>())
                                                   : Scalar(size.get<double>()),
             .stratify_by_column = "label"});
        for (std::size_t label = 0; label < counts.size(); ++label) {
            const auto count = [&](const Table& part) {
                return part
                    .filter([&](const Tree& row) {
                        return row["label"].string() == str("class ", label);
                    })
                    .size();
            };
            EXPECT_EQ(count(train), recorded["train"][label].get<std::int64_t>());
            EXPECT_EQ(count(test), recorded["test"][label].get<std::int64_t>());
        }
        expect_divides({train, test}, std::ssize(rows));
    }
}

TEST(Table, RejectsInvalidSplits) {
    const auto rejects = [](std::initializer_list<const char*> parts,
                            const TrainTestSplitOptions& options) {
        const Table table =
            Table::from_list({{{"x", 1}, {"y", 0.5}}, {{"x", 1}}, {{"x", 2}}, {{"x", 2}}});
        expect_error<ValueError>(parts, [&] { table.train_test_split(options); });
    };
    rejects({"train_test_split: test_size must be in [1, 3] for 4 rows: it is 4"},
            {.test_size = 4});
    rejects({"train_test_split: test_size must be in [1, 3]"}, {.test_size = 0});
    rejects({"train_test_split: test_size", "fraction in (0, 1): it is 1"}, {.test_size = 1.0});
    rejects({"train_test_split: test_size", "no training rows"}, {.test_size = 0.9});
    rejects({"train_test_split: stratify_by_column requires shuffle"},
            {.shuffle = false, .stratify_by_column = "x"});
    rejects({"train_test_split: the type of stratify_by_column", "number"},
            {.stratify_by_column = "y"});
    rejects({"train_test_split: each part must have a row for each of the 2 classes"},
            {.test_size = 1, .stratify_by_column = "x"});
    const Table single = Table::from_list({{{"x", 1}}, {{"x", 2}}, {{"x", 2}}, {{"x", 2}}});
    expect_error<ValueError>(
        {"train_test_split: each class", "at least 2 rows: the class of row 0 has 1"},
        [&] { single.train_test_split({.test_size = 2, .stratify_by_column = "x"}); });
}

}  // namespace
}  // namespace axle::data
