// Tests loaders that are moved, returned by functions and stored in vectors.
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "data/loading/loader.h"
#include "tests/close.h"
#include "tests/data/samples.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::Ids, tests::pass, tests::sample;

std::pair<DataLoader, DataLoader> make_loaders() {
    DataLoader train(from_function(6, sample),
                     {.batch_size = 2, .shuffle = true, .num_workers = 2, .seed = 42});
    DataLoader test(from_function(3, sample), {.batch_size = 2});
    return {std::move(train), std::move(test)};
}

TEST(DataLoader, CanBeReturnedByFunctionsAndStoredInVectors) {
    auto [train, test] = make_loaders();
    DataLoader reference(from_function(6, sample), {.batch_size = 2, .shuffle = true, .seed = 42});
    EXPECT_EQ(pass(train), pass(reference));
    EXPECT_EQ(pass(test), (std::vector<Ids>{{0, 1}, {2}}));

    std::vector<DataLoader> loaders;
    loaders.push_back(std::move(train));
    for (int i = 0; i < 5; ++i) loaders.emplace_back(from_function(2, sample));
    EXPECT_EQ(loaders[0].epoch(), 1);
    EXPECT_EQ(pass(loaders[0]), pass(reference));
    loaders[1] = std::move(test);
    EXPECT_EQ(pass(loaders[1]).size(), 2U);
}

TEST(DataLoader, KeepsItsStateWhenMovedAndRejectsCallsAfterwards) {
    DataLoader from(from_function(8, sample), {.batch_size = 2});
    from.set_epoch(3);
    from.skip_first_batches(1);
    from.shard(ShardOptions{.num_processes = 2, .process_index = 1});
    DataLoader to(std::move(from));
    EXPECT_EQ(to.epoch(), 3);
    EXPECT_EQ(to.len(), 2);
    EXPECT_EQ(pass(to), (std::vector<Ids>{{6, 7}}));
    expect_error<UsageError>({"DataLoader: begin: ", "moved"}, [&] { from.begin(); });  // NOLINT
    expect_error<UsageError>({"DataLoader: len: ", "moved"}, [&] { from.len(); });
    expect_error<UsageError>({"DataLoader: state_dict: ", "moved"}, [&] { from.state_dict(); });
    from = std::move(to);
    EXPECT_EQ(pass(from), (std::vector<Ids>{{2, 3}, {6, 7}}));
}

TEST(DataLoader, CannotBeMovedDuringAPass) {
    DataLoader loader(from_function(3, sample), {}), other(from_function(1, sample), {});
    {
        const auto it = loader.begin();
        expect_error<UsageError>({"DataLoader: moving", "during a pass"},
                                 [&] { const DataLoader moved(std::move(loader)); });
        expect_error<UsageError>({"DataLoader: moving", "during a pass"},
                                 [&] { other = std::move(loader); });
        expect_error<UsageError>({"DataLoader: assignment", "during a pass"},
                                 [&] { loader = std::move(other); });
    }
    EXPECT_EQ(pass(loader).size(), 3U);  // NOLINT: the loader was not moved
    EXPECT_EQ(pass(other).size(), 1U);   // NOLINT
}

TEST(DataLoaderIterator, RejectsAccessAtTheEndAndAfterAMove) {
    DataLoader loader(from_function(2, sample), {.batch_size = 2});
    auto it = loader.begin(), moved = std::move(it);
    const auto expect_refused = [](auto& at_end) {
        for (int again = 0; again < 2; ++again) {
            tests::expect_error<UsageError>(
                {"DataLoader::Iterator: operator++: the iterator is at"}, [&] { ++at_end; });
            tests::expect_error<UsageError>({"DataLoader::Iterator: operator*: the iterator is at"},
                                            [&] { (*at_end).size(); });
        }
        EXPECT_TRUE(at_end == std::default_sentinel);
    };
    expect_refused(it);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(moved->size(), 1u);
    ++moved;
    expect_refused(moved);
    EXPECT_EQ(loader.epoch(), 1);
}

}  // namespace
}  // namespace axle::data
