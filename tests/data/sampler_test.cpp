#include "data/sampler.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "data/mt19937.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

using Indices = std::vector<std::int64_t>;

TEST(Mt19937, RandpermIsPyTorchs) {
    EXPECT_EQ(randperm(0, 0), Indices{});
    EXPECT_EQ(randperm(1, 0), Indices{0});
    EXPECT_EQ(randperm(5, 0), (Indices{4, 0, 1, 3, 2}));
    EXPECT_EQ(randperm(2, 1), (Indices{1, 0}));
    EXPECT_EQ(randperm(10, 21), (Indices{3, 7, 2, 5, 4, 9, 6, 8, 1, 0}));
    EXPECT_EQ(randperm(16, 42), (Indices{6, 3, 0, 7, 10, 15, 2, 12, 14, 9, 8, 5, 4, 13, 11, 1}));
    EXPECT_EQ(randperm(33, 42),
              (Indices{6,  20, 17, 7,  30, 8,  13, 27, 5,  26, 31, 21, 32, 3,  10, 19, 1,
                       24, 4,  29, 12, 15, 14, 2,  16, 18, 0,  25, 9,  23, 28, 22, 11}));
    EXPECT_EQ(randperm(16, 1234567),
              (Indices{3, 15, 10, 4, 13, 9, 14, 5, 8, 1, 12, 11, 7, 6, 2, 0}));
    EXPECT_EQ(randperm(5, 5 + (std::uint64_t{1} << 32)), randperm(5, 5));
    EXPECT_THROW(randperm(-1, 0), ValueError);
}

TEST(Mt19937, RandintIsPyTorchsInNarrowAndWideRanges) {
    const auto draw = [](std::int64_t high) {
        Mt19937 random(42);
        return randint(high, 4, random);
    };
    EXPECT_EQ(draw(10), (Indices{2, 7, 6, 4}));
    EXPECT_EQ(draw((1 << 28) - 1), (Indices{266460267, 199900607, 56755051, 250975504}));
    EXPECT_EQ(draw(1 << 28), (Indices{199900595, 250975502, 127521863, 147532820}));
    EXPECT_EQ(draw(std::int64_t{1} << 40),
              (Indices{441507790259, 395924837646, 458615280711, 810017303572}));
}

TEST(Mt19937, ACopyGoesOnAsTheOriginal) {
    Mt19937 random(7);
    random.next32();
    Mt19937 copy = random;
    EXPECT_EQ(randperm(100, random), randperm(100, copy));
}

TEST(RandomSampler, OrderIsASeedableRandomSamplers) {
    const RandomSampler small(6, {.seed = 42});
    EXPECT_EQ(small.indices(0), (Indices{0, 3, 2, 4, 1, 5}));
    EXPECT_EQ(small.indices(1), (Indices{4, 0, 5, 1, 2, 3}));
    EXPECT_EQ(small.indices(2), (Indices{4, 0, 3, 2, 5, 1}));
    EXPECT_EQ(small.indices(3), (Indices{5, 2, 0, 1, 4, 3}));
    EXPECT_EQ(small.indices(0), small.indices(0));
    const RandomSampler ten(10, {.seed = 1337});
    EXPECT_EQ(ten.indices(3), (Indices{3, 1, 5, 9, 8, 7, 0, 6, 4, 2}));
}

TEST(RandomSampler, DrawsAsManyAsAskedWithAndWithoutReplacement) {
    const RandomSampler more(5, {.seed = 42, .num_samples = 13});
    EXPECT_EQ(more.indices(), (Indices{2, 4, 3, 0, 1, 1, 4, 3, 2, 0, 0, 2, 3}));
    const RandomSampler again(10, {.seed = 42, .replacement = true, .num_samples = 12});
    EXPECT_EQ(again.indices(), (Indices{2, 7, 6, 4, 6, 5, 0, 4, 0, 3, 8, 4}));
    EXPECT_EQ(RandomSampler(5, {.num_samples = 2}).size(), 2);
    EXPECT_EQ(RandomSampler(0).indices(), Indices{});
    EXPECT_THROW(RandomSampler(0, {.num_samples = 1}), ValueError);
    EXPECT_THROW(RandomSampler(-1), ValueError);
}

TEST(Samplers, SequentialAndSubset) {
    EXPECT_EQ(SequentialSampler(3).indices(9), (Indices{0, 1, 2}));
    EXPECT_EQ(SubsetSampler({7, 2, 7}).indices(9), (Indices{7, 2, 7}));
}

TEST(BatchSampler, TheLastBatchIsShortOrDropped) {
    const auto samples = std::make_shared<SequentialSampler>(7);
    const FixedBatchSampler keep(samples, 3, false), drop(samples, 3, true);
    EXPECT_EQ(keep.size(), 3);
    EXPECT_EQ(drop.size(), 2);
    EXPECT_EQ(keep.order(0)(2), Indices{6});
    EXPECT_EQ(drop.order(0)(1), (Indices{3, 4, 5}));
    EXPECT_EQ(FixedBatchSampler(std::make_shared<SequentialSampler>(6), 3, false).size(), 2);
    EXPECT_EQ(FixedBatchSampler(std::make_shared<SequentialSampler>(0), 3, false).size(), 0);
    EXPECT_THROW(FixedBatchSampler(samples, 0, false), ValueError);
}

}  // namespace
}  // namespace axle::data
