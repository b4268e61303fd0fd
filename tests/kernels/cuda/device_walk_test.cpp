// Tests the index arithmetic of GPU kernels.
#if AXLE_CUDA

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/walk.cuh"

namespace axle::tests {
namespace {

using namespace kernels;

constexpr int kOperands = 3;
using Places = std::vector<std::array<std::int64_t, kOperands>>;
using Strides = std::array<std::vector<std::int64_t>, kOperands>;

Walk<kOperands> walk_of(const std::vector<std::int64_t>& shape, const Strides& strides) {
    std::array<ConstView, kOperands> views;
    for (std::size_t k = 0; k < kOperands; ++k) {
        views[k].ndim = static_cast<int>(shape.size());
        std::copy(shape.begin(), shape.end(), views[k].shape);
        std::copy(strides[k].begin(), strides[k].end(), views[k].stride);
    }
    return Walk<kOperands>(views);
}

// Computes offsets element by element from the strides of the views.
Places places_of(const std::vector<std::int64_t>& shape, const Strides& strides) {
    Places places = {{}};
    for (std::size_t d = 0; d < shape.size(); ++d) {
        Places longer;
        for (const auto& place : places)
            for (std::int64_t i = 0; i < shape[d]; ++i) {
                longer.push_back(place);
                for (std::size_t k = 0; k < kOperands; ++k) longer.back()[k] += i * strides[k][d];
            }
        places = std::move(longer);
    }
    return places;
}

std::array<std::int64_t, kOperands> place_in(const DeviceWalk<kOperands>& walk, std::uint32_t i) {
    const auto place = walk.place(i);
    std::array<std::int64_t, kOperands> at;
    std::copy(std::begin(place.at), std::end(place.at), at.begin());
    return at;
}

// Returns the 64-bit offsets of element i in a walk of any size.
std::array<std::int64_t, kOperands> place_in(const Walk<kOperands>& walk, std::int64_t i) {
    std::array<std::int64_t, kOperands> at = walk.offsets(i / walk.width());
    for (int k = 0; k < kOperands; ++k)
        at[static_cast<std::size_t>(k)] += i % walk.width() * walk.stride(k);
    return at;
}

struct Case {
    std::vector<std::int64_t> shape;
    Strides strides;
};

// Returns a shape of up to 5 dimensions, and operands with permuted, broadcast or reversed
// dimensions and with gaps.
Case random_case(std::mt19937& random) {
    Case c;
    const std::size_t dims = random() % 6;
    for (std::size_t d = 0; d < dims; ++d) c.shape.push_back(1 + random() % 6);
    for (auto& strides : c.strides) {
        strides.resize(dims);
        std::vector<std::size_t> order(dims);
        for (std::size_t d = 0; d < dims; ++d) order[d] = dims - 1 - d;
        if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
        std::int64_t room = random() % 4 == 0 ? 2 : 1;
        for (const std::size_t d : order) {
            strides[d] = random() % 5 == 0 ? 0 : random() % 5 == 0 ? -room : room;
            room *= c.shape[d] + (random() % 4 == 0 ? 3 : 0);
        }
    }
    return c;
}

TEST(Divider, MatchesIntegerDivision) {
    constexpr std::int64_t kEnd = std::int64_t{1} << 31;
    std::vector<std::int64_t> divisors = {3, 5, 6, 7, 10, 11, 100, 641, 1000000007};
    for (int bit = 0; bit <= 31; ++bit)
        for (std::int64_t d = -3; d <= 3; ++d) divisors.push_back((std::int64_t{1} << bit) + d);
    std::mt19937 random(1);
    for (int i = 0; i < 3000; ++i)
        divisors.push_back(static_cast<std::int64_t>(random() >> (1 + random() % 31)));
    for (const std::int64_t d : divisors) {
        if (d < 1 || d >= kEnd) continue;
        const Divider by(d);
        std::vector<std::int64_t> numbers = {0, 1, 2, kEnd - 3, kEnd - 2, kEnd - 1};
        for (int i = 0; i < 60; ++i) {
            const std::int64_t multiple =
                std::int64_t{static_cast<std::int32_t>(random() >> 1)} % (kEnd / d + 1) * d;
            for (std::int64_t off = -1; off <= 1; ++off) numbers.push_back(multiple + off);
        }
        for (std::int64_t off = -1; off <= 1; ++off) numbers.push_back((kEnd - 1) / d * d + off);
        for (const std::int64_t n : numbers) {
            if (n < 0 || n >= kEnd) continue;
            ASSERT_EQ(by.quotient(static_cast<std::uint32_t>(n)), n / d) << n << " / " << d;
        }
    }
}

TEST(DeviceWalk, ComputesTheOffsetOfEveryElement) {
    std::mt19937 random(2);
    for (int trial = 0; trial < 2000; ++trial) {
        const Case c = random_case(random);
        const Walk<kOperands> walk = walk_of(c.shape, c.strides);
        Places found;
        for_each_slab(walk, [&](const DeviceWalk<kOperands>& whole) {
            EXPECT_TRUE(found.empty());
            for (std::uint32_t i = 0; i < whole.numel; ++i) {
                found.push_back(place_in(whole, i));
                ASSERT_EQ(found.back(), place_in(walk, std::int64_t{i}));
            }
        });
        Places expected = places_of(c.shape, c.strides);
        std::sort(found.begin(), found.end());
        std::sort(expected.begin(), expected.end());
        ASSERT_EQ(found, expected) << "trial " << trial;
    }
}

TEST(DeviceWalk, ComputesOffsetsIn64Bits) {
    constexpr std::int64_t kFar = (std::int64_t{1} << 33) + 5;
    const Walk<kOperands> walk =
        walk_of({4, 1000, 3}, {{{-kFar, 7, 1 << 29}, {kFar, 1, 0}, {0, kFar, -kFar}}});
    for_each_slab(walk, [&](const DeviceWalk<kOperands>& whole) {
        EXPECT_EQ(whole.numel, 12000u);
        for (std::uint32_t i = 0; i < whole.numel; ++i)
            ASSERT_EQ(place_in(whole, i), place_in(walk, std::int64_t{i}));
    });
}

TEST(Slabs, CoverEveryElementOnceInOrder) {
    std::mt19937 random(3);
    for (int trial = 0; trial < 2000; ++trial) {
        const Case c = random_case(random);
        const Walk<kOperands> walk = walk_of(c.shape, c.strides);
        const std::int64_t most = 1 + random() % 40;
        std::int64_t next = 0;
        for_each_slab(
            walk,
            [&](const DeviceWalk<kOperands>& slab) {
                EXPECT_LE(slab.numel, most);
                for (std::uint32_t i = 0; i < slab.numel; ++i)
                    ASSERT_EQ(place_in(slab, i), place_in(walk, next++)) << "trial " << trial;
            },
            most);
        EXPECT_EQ(next, walk.rows() * walk.width());
    }
}

TEST(Slabs, AreAbsentForAnEmptyView) {
    for_each_slab(walk_of({3, 0}, {{{0, 1}, {0, 1}, {0, 1}}}),
                  [](const DeviceWalk<kOperands>&) { FAIL(); });
}

// Tests the offsets of views with 2^31 elements and more, at the first, the last and some other
// elements of each slab.
void expect_whole(const std::vector<std::int64_t>& shape, const Strides& strides,
                  std::int64_t most) {
    std::mt19937 random(4);
    const Walk<kOperands> walk = walk_of(shape, strides);
    std::int64_t first = 0;
    for_each_slab(
        walk,
        [&](const DeviceWalk<kOperands>& slab) {
            ASSERT_LE(slab.numel, most);
            for (int i = 0; i < 50; ++i) {
                const auto n = static_cast<std::uint32_t>(i == 0   ? 0
                                                          : i == 1 ? slab.numel - 1
                                                                   : random() % slab.numel);
                ASSERT_EQ(place_in(slab, n), place_in(walk, first + n)) << first << " + " << n;
            }
            first += slab.numel;
        },
        most);
    std::int64_t all = 1;
    for (const std::int64_t size : shape) all *= size;
    EXPECT_EQ(first, all);
}

TEST(Slabs, ReachElementsBeyond32Bits) {
    for (const std::int64_t most :
         {std::int64_t{std::numeric_limits<std::int32_t>::max()}, kMaxInPacks}) {
        constexpr std::int64_t kLong = (std::int64_t{1} << 33) + 12345;
        expect_whole({kLong}, {{{1}, {-1}, {0}}}, most);
        expect_whole({std::int64_t{1} << 31}, {{{1}, {2}, {3}}}, most);
        expect_whole({3, kLong}, {{{kLong + 8, 1}, {1, 3}, {0, 1}}}, most);
        expect_whole({3, 70001, 70000},
                     {{{70001LL * 70000, 70000, 1}, {1, 3, 3 * 70001}, {0, 1, 0}}}, most);
        expect_whole({70000, 3, 5, 70001},
                     {{{15 * 70001, 5 * 70001, 70001, 1}, {5, 1, 0, -9}, {0, 7, 70, 1}}}, most);
    }
}

TEST(PackedWalk, RequiresAlignedRowsThatAreContiguousOrBroadcast) {
    const auto steps = [](const std::vector<std::int64_t>& shape, const Strides& strides) {
        return steps_by_packs(walk_of(shape, strides), 4);
    };
    EXPECT_TRUE(steps({8}, {{{1}, {1}, {1}}}));
    EXPECT_TRUE(steps({4}, {{{1}, {1}, {0}}}));
    EXPECT_TRUE(steps({9}, {{{1}, {1}, {1}}})) << "one row may leave elements over";
    EXPECT_FALSE(steps({3}, {{{1}, {1}, {1}}}));
    EXPECT_FALSE(steps({}, {{}}));
    EXPECT_FALSE(steps({8}, {{{1}, {2}, {1}}}));
    EXPECT_FALSE(steps({8}, {{{1}, {-1}, {1}}}));
    EXPECT_TRUE(steps({2, 8}, {{{8, 1}, {0, 1}, {12, 1}}}));
    EXPECT_TRUE(steps({2, 8}, {{{8, 1}, {1, 0}, {3, 0}}})) << "one element for each pack";
    EXPECT_FALSE(steps({2, 8}, {{{8, 1}, {10, 1}, {8, 1}}}));
    EXPECT_FALSE(steps({2, 9}, {{{12, 1}, {12, 1}, {12, 1}}}));
    EXPECT_FALSE(steps({2, 8}, {{{8, 1}, {1, 2}, {8, 1}}}));
}

TEST(PackedWalk, StartsAtTheFirstElementOfEachPack) {
    std::mt19937 random(5);
    int walks = 0;
    for (int trial = 0; trial < 4000; ++trial) {
        Case c = random_case(random);
        const int n = trial % 2 == 0 ? 2 : 4;
        const Walk<kOperands> walk = walk_of(c.shape, c.strides);
        if (!steps_by_packs(walk, n)) continue;
        ++walks;
        for_each_slab(
            walk,
            [&](const DeviceWalk<kOperands>& slab) {
                const DeviceWalk<kOperands> packs = in_packs(slab, n);
                EXPECT_EQ(packs.numel, slab.numel / static_cast<std::uint32_t>(n));
                EXPECT_TRUE(slab.ndim == 1 ||
                            slab.size[slab.ndim - 1] % static_cast<unsigned>(n) == 0);
                for (std::uint32_t i = 0; i < packs.numel; ++i)
                    ASSERT_EQ(place_in(packs, i), place_in(slab, i * static_cast<unsigned>(n)));
            },
            trial % 3 == 0 ? kMaxInPacks : 8);
    }
    EXPECT_GT(walks, 100);
}

TEST(PackedWalk, IsEmptyForRowsShorterThanAPack) {
    for_each_slab(walk_of({3}, {{{1}, {1}, {1}}}), [](const DeviceWalk<kOperands>& slab) {
        EXPECT_EQ(in_packs(slab, 4).numel, 0u);
    });
}

}  // namespace
}  // namespace axle::tests

#endif
