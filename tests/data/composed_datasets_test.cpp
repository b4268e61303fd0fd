#include "data/composed_datasets.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "core/ops.h"
#include "data/loading/loader.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/samples.h"
#include "tests/vectors.h"

namespace axle::data {
namespace {

using tests::Batches, tests::expect_error, tests::Ids, tests::pass, tests::sample;

// A dataset in which sample i of epoch e has the id 100 * e + i. Counts calls of get_batch().
class Dated : public Dataset {
  public:
    explicit Dated(std::int64_t n, std::int64_t epoch = 0) : n_(n), epoch_(epoch) {}
    std::int64_t size() const override { return n_; }
    Tree get(std::int64_t index) const override { return sample(100 * epoch_ + index); }
    Tree get_batch(std::span<const std::int64_t> indices) const override {
        ++batches;
        return Dataset::get_batch(indices);
    }
    std::shared_ptr<const Dataset> in_epoch(std::int64_t epoch) const override {
        return std::make_shared<Dated>(n_, epoch);
    }

    mutable int batches = 0;

  private:
    std::int64_t n_, epoch_;
};

FunctionDataset numbers(std::int64_t n, std::int64_t first = 0) {
    return from_function(n, [first](std::int64_t i) { return sample(first + i); });
}

Ids ids_of(const Dataset& dataset) {
    Ids ids;
    for (std::int64_t i = 0; i < dataset.size(); ++i) ids.push_back(dataset.get(i)["id"].integer());
    return ids;
}

Batches indices_of(const std::vector<Subset>& parts) {
    Batches indices;
    for (const Subset& part : parts) indices.push_back(part.indices());
    return indices;
}

const std::shared_ptr<const Dataset> kNullDataset;

TEST(DatasetRef, RefersToVariablesMovesTemporariesAndSharesPointers) {
    const TensorDataset variable({{"id", arange(3)}});
    const auto shared = std::make_shared<FunctionDataset>(numbers(2));
    EXPECT_EQ(DatasetRef(variable).pointer().get(), &variable);
    EXPECT_EQ(DatasetRef(shared).pointer(), shared);
    EXPECT_EQ(DatasetRef(numbers(4)).pointer()->size(), 4);
    EXPECT_EQ(DatasetRef(kNullDataset).pointer(), nullptr);
}

TEST(Subset, ReadsSamplesInTheOrderOfItsIndices) {
    const auto set = numbers(5);
    const Subset subset(set, {4, 0, 4, 2});
    EXPECT_EQ(subset.size(), 4);
    EXPECT_EQ(subset.indices(), (Ids{4, 0, 4, 2}));
    EXPECT_EQ(ids_of(subset), (Ids{4, 0, 4, 2}));
    EXPECT_EQ(ids_of(Subset(subset, {3, 1})), (Ids{2, 0}));
    EXPECT_EQ(ids_of(select(numbers(5), {1, 3})), (Ids{1, 3}));
    EXPECT_EQ(Subset(set, {}).size(), 0);
}

TEST(Subset, MakesBatchesWithGetBatchOfTheDataset) {
    const Dated set(5);
    const Subset subset(set, {4, 0, 4, 2});
    EXPECT_EQ(tests::ids_of(subset.get_batch(Ids{1, 2, 3})), (Ids{0, 4, 2}));
    EXPECT_EQ(set.batches, 1);
}

TEST(Subset, RejectsInvalidIndicesAndNullDatasets) {
    const auto set = numbers(5);
    expect_error<IndexError>({"Subset: index 5 at position 1", "5 samples"}, [&] {
        Subset(set, {0, 5});
    });
    expect_error<IndexError>({"Subset: index -1 at position 0", "5 samples"},
                             [&] { Subset(set, {-1}); });
    const Subset subset(set, {4, 0});
    for (const std::int64_t index : {-1, 2}) {
        EXPECT_THROW(subset.get(index), IndexError);
        EXPECT_THROW(subset.get_batch(Ids{0, index}), IndexError);
    }
    expect_error<UsageError>({"Subset: the dataset must not be null"},
                             [] { Subset(kNullDataset, {}); });
}

TEST(RandomSplit, MatchesPyTorch) {
    const auto file = tests::golden_json("data.json");
    for (const auto& c : file["random_split"]) {
        std::vector<Scalar> lengths;
        for (const auto& length : c["lengths"]) {
            if (length.is_number_integer())
                lengths.emplace_back(length.get<std::int64_t>());
            else
                lengths.emplace_back(length.get<double>());
        }
        const auto set = numbers(c["n"].get<std::int64_t>());
        EXPECT_EQ(indices_of(random_split(set, lengths, c["seed"].get<std::uint64_t>())),
                  c["parts"].get<Batches>())
            << c;
    }
}

TEST(RandomSplit, TakesSizesAndFractions) {
    const auto set = numbers(7);
    const std::int64_t two = 2;
    EXPECT_EQ(indices_of(random_split(set, {two, 5})), indices_of(random_split(set, {2, 5}, 0)));
    const auto parts = random_split(set, {0.5, 0.5}, 3);
    EXPECT_EQ(parts[0].size(), 4);
    EXPECT_EQ(parts[1].size(), 3);
    Ids all = parts[0].indices();
    all.insert(all.end(), parts[1].indices().begin(), parts[1].indices().end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, (Ids{0, 1, 2, 3, 4, 5, 6}));
    // 0.1 is added ten times, and the sum differs from 1 by rounding.
    EXPECT_EQ(random_split(set, std::vector<Scalar>(10, 0.1)).size(), 10u);
}

TEST(RandomSplit, RejectsInvalidLengthsAndNullDatasets) {
    const auto set = numbers(10);
    const auto expect_value_error = [&](std::initializer_list<const char*> parts,
                                        const std::vector<Scalar>& lengths) {
        expect_error<ValueError>(parts, [&] { random_split(set, lengths); });
    };
    expect_value_error({"random_split: ", "[8, 3]", "10 samples"}, {8, 3});
    expect_value_error({"random_split: ", "[8, 1]", "10 samples"}, {8, 1});
    expect_value_error({"random_split: ", "[12, -2]", "10 samples"}, {12, -2});
    expect_value_error({"random_split: ", "negative", "[-2, 12]"}, {-2, 12});
    expect_value_error({"random_split: ", "10 samples"}, {INT64_MAX, INT64_MAX, 12});
    expect_value_error({"random_split: ", "[0.5, 0.4]", "0.9"}, {0.5, 0.4});
    expect_value_error({"random_split: ", "[0.5, 0.6]", "1.1"}, {0.5, 0.6});
    expect_value_error({"random_split: ", "[0, 1]", "[-0.5, 1.5]"}, {-0.5, 1.5});
    expect_value_error({"random_split: ", "[0, 1]", "nan"}, {0.5, std::nan("")});
    expect_value_error({"random_split: ", "[0.5, 5]"}, {0.5, 5});
    expect_value_error({"random_split: needs at least one length"}, {});
    expect_error<UsageError>({"random_split: the dataset must not be null"},
                             [] { random_split(kNullDataset, {1.0}); });
}

TEST(ConcatDataset, ReadsDatasetsOneAfterAnotherAndRejectsInvalidIndicesAndNullDatasets) {
    const auto first = numbers(2), empty = numbers(0);
    const ConcatDataset all({first, empty, numbers(3, 10)});
    EXPECT_EQ(all.size(), 5);
    EXPECT_EQ(ids_of(all), (Ids{0, 1, 10, 11, 12}));
    EXPECT_EQ(tests::ids_of(all.get_batch(Ids{4, 0, 2})), (Ids{12, 0, 10}));
    EXPECT_THROW(all.get(5), IndexError);
    EXPECT_THROW(all.get(-1), IndexError);
    expect_error<ValueError>({"ConcatDataset: needs at least one dataset"},
                             [] { ConcatDataset({}); });
    expect_error<UsageError>({"ConcatDataset: dataset 1 must not be null"}, [&] {
        ConcatDataset({first, kNullDataset});
    });
}

TEST(StackDataset, JoinsSamplesOfSeveralDatasets) {
    const auto first = numbers(3), second = numbers(3, 10);
    const StackDataset maps({{"a", first}, {"b", second}});
    EXPECT_EQ(maps.size(), 3);
    EXPECT_EQ(maps.get(1)["a"]["id"].integer(), 1);
    EXPECT_EQ(maps.get(1)["b"]["id"].integer(), 11);
    const StackDataset lists({first, second});
    EXPECT_EQ(lists.get(2)[0]["id"].integer(), 2);
    EXPECT_EQ(lists.get(2)[1]["id"].integer(), 12);
    EXPECT_EQ(tests::ids_of(lists.get_batch(Ids{2, 0})[1]), (Ids{12, 10}));
}

TEST(StackDataset, MakesBatchesWithGetBatchOfTheDatasets) {
    const Dated set(3);
    const StackDataset stacked({{"a", set}, {"b", set}});
    EXPECT_EQ(tests::ids_of(stacked.get_batch(Ids{2, 0})["b"]), (Ids{2, 0}));
    EXPECT_EQ(set.batches, 2);
}

TEST(StackDataset, RejectsInvalidDatasetsAndIndices) {
    const auto three = numbers(3), two = numbers(2);
    expect_error<ValueError>({"StackDataset: ", "3 samples", "'b' has 2"}, [&] {
        StackDataset({{"a", three}, {"b", two}});
    });
    expect_error<ValueError>({"StackDataset: ", "3 samples", "dataset 1 has 2"}, [&] {
        StackDataset({three, two});
    });
    expect_error<ValueError>({"StackDataset: the key 'a' occurs twice"}, [&] {
        StackDataset({{"a", three}, {"a", three}});
    });
    expect_error<ValueError>({"StackDataset: needs at least one dataset"},
                             [] { StackDataset(std::vector<DatasetRef>()); });
    expect_error<UsageError>({"StackDataset: dataset 1 must not be null"}, [&] {
        StackDataset({three, kNullDataset});
    });
    const StackDataset stacked({three, three});
    expect_error<IndexError>({"StackDataset: index 3", "3 samples"}, [&] { stacked.get(3); });
    EXPECT_THROW(stacked.get_batch(Ids{0, -1}), IndexError);
}

TEST(MapDataset, ChangesEachSampleAndRejectsNullDatasetsAndEmptyFunctions) {
    const auto doubled = map(numbers(3), [](Tree s) { return sample(2 * s["id"].integer()); });
    EXPECT_EQ(doubled.size(), 3);
    EXPECT_EQ(ids_of(doubled), (Ids{0, 2, 4}));
    EXPECT_EQ(tests::ids_of(doubled.get_batch(Ids{2, 1})), (Ids{4, 2}));
    expect_error<UsageError>({"MapDataset: the function must not be empty"},
                             [] { map(numbers(3), std::function<Tree(Tree)>()); });
    expect_error<UsageError>({"MapDataset: the dataset must not be null"},
                             [] { map(DatasetRef(kNullDataset), [](Tree s) { return s; }); });
}

TEST(Filter, KeepsSamplesForWhichTheFunctionReturnsTrueAndReportsErrors) {
    const auto set = numbers(6);
    const Subset odd = filter(set, [](const Tree& s) { return s["id"].integer() % 2 == 1; });
    EXPECT_EQ(odd.indices(), (Ids{1, 3, 5}));
    expect_error<IndexError>({"filter: sample 0: "},
                             [&] { filter(set, [](const Tree& s) { return s["x"].boolean(); }); });
    expect_error<UsageError>({"filter: the function must not be empty"},
                             [&] { filter(set, std::function<bool(const Tree&)>()); });
}

TEST(ComposedDatasets, ReadTheirDatasetsInTheGivenEpoch) {
    const Dated dated(3);
    const auto fixed = numbers(2, 50);
    const Subset subset(dated, {2, 0});
    const ConcatDataset concatenated({fixed, dated});
    const StackDataset stacked({dated, dated});
    const auto mapped = map(dated, [](Tree s) { return sample(-s["id"].integer()); });
    EXPECT_EQ(ids_of(*subset.in_epoch(2)), (Ids{202, 200}));
    EXPECT_EQ(ids_of(*concatenated.in_epoch(2)), (Ids{50, 51, 200, 201, 202}));
    EXPECT_EQ(stacked.in_epoch(3)->get(1)[1]["id"].integer(), 301);
    EXPECT_EQ(ids_of(*mapped.in_epoch(1)), (Ids{-100, -101, -102}));
    EXPECT_EQ(Subset(fixed, {0}).in_epoch(2), nullptr);
    EXPECT_EQ(ConcatDataset({fixed}).in_epoch(2), nullptr);
    EXPECT_EQ(StackDataset({fixed}).in_epoch(2), nullptr);
    EXPECT_EQ(map(fixed, [](Tree s) { return s; }).in_epoch(2), nullptr);
}

TEST(ComposedDatasets, AreReadInTheCurrentEpochByAShardedLoader) {
    const Dated dated(5);
    const ConcatDataset all({dated, numbers(2, 50)});
    DataLoader loader(Subset(all, {6, 0, 1, 5}), {.batch_size = 1, .num_workers = 2});
    loader.shard(ShardOptions{.num_processes = 2, .process_index = 1});
    EXPECT_EQ(pass(loader), (Batches{{0}, {50}}));
    EXPECT_EQ(pass(loader), (Batches{{100}, {50}}));
}

}  // namespace
}  // namespace axle::data
