#include "core/random.h"

#include <array>
#include <cmath>
#include <numbers>
#include <random>
#include <set>
#include <thread>

#include "core/autograd/autograd.h"
#include "core/launch.h"
#include "core/ops.h"
#include "kernels/ops/random.h"
#include "tests/close.h"

namespace axle::tests {

namespace {

using kernels::Philox;
using Words = std::array<std::uint32_t, 4>;

// Computes Philox 4x32-10 as its paper defines it, with the full counter and key.
Words reference_philox(Words c, std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t left = std::uint64_t{c[0]} * 0xD2511F53;
        const std::uint64_t right = std::uint64_t{c[2]} * 0xCD9E8D57;
        const auto upper = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
        c = {upper(right) ^ c[1] ^ key[0], static_cast<std::uint32_t>(right),
             upper(left) ^ c[3] ^ key[1], static_cast<std::uint32_t>(left)};
        key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
    }
    return c;
}

Tensor uniform(Philox random, const Shape& shape, DType dtype = f64) {
    Tensor y = empty(shape, {dtype});
    kernels::uniform(cpu_context(), random, 0, 1, y.view());
    return y;
}

// The values are the known-answer tests of Random123, the implementation by the authors of Philox.
TEST(Philox, MatchesKnownAnswers) {
    EXPECT_EQ(Philox{}.block(0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    constexpr std::uint32_t kOnes = 0xffffffff;
    EXPECT_EQ(reference_philox({}, {}), Philox{}.block(0));
    EXPECT_EQ(reference_philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(reference_philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                               {0xa4093822, 0x299f31d0}),
              (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UsesAllBitsOfSeedAndOffset) {
    std::mt19937_64 numbers(1);
    for (int i = 0; i < 100; ++i) {
        const std::uint64_t seed = numbers(), offset = numbers(), index = numbers();
        const std::uint64_t counter = offset + index;
        const auto lower = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
        const Words expected = reference_philox({lower(counter), lower(counter >> 32), 0, 0},
                                                {lower(seed), lower(seed >> 32)});
        EXPECT_EQ((Philox{seed, offset}.block(index)), expected);
    }
}

TEST(Uniform, UsesRandomWordOfSameIndexForEachElement) {
    // Some of these offsets have a lower half that wraps around.
    for (const std::uint64_t offset : {0ull, 5ull, 0xffffffffull - 10, ~0ull - 3}) {
        const Philox random{0x123456789abcdef0, offset};
        for (const std::int64_t n : {1, 3, 4, 67, 511, 1300}) {
            const auto doubles = uniform(random, {n}).to_vector();
            const auto floats = uniform(random, {n}, f32).to_vector();
            for (std::size_t i = 0; i < doubles.size(); ++i) {
                ASSERT_EQ(doubles[i], Philox::to_unit(random.word(i))) << offset << " " << i;
                ASSERT_EQ(floats[i], doubles[i]);
            }
        }
    }
}

TEST(Uniform, CoversItsRangeWithoutTheUpperBoundInEachFloatingDType) {
    for (const DType dtype : {f64, f32, f16, bf16}) {
        for (const auto& [low, high] :
             {std::pair{0.0, 1.0}, {-1.0, 0.0}, {-3.0, -1.0}, {1.0, 1.5}}) {
            const Tensor x = empty({200'000}, {dtype}).uniform_(low, high);
            const double smallest = min(to(x, f64)).item(), largest = max(to(x, f64)).item();
            EXPECT_GE(smallest, low) << dtype;
            EXPECT_LT(largest, high) << dtype << " " << low;
            EXPECT_LT(smallest, low + (high - low) / 50);
            EXPECT_GT(largest, high - (high - low) / 50);
        }
        EXPECT_EQ(empty({}, {dtype}).uniform_(2, 2).item(), 2);
    }
}

TEST(Normal, AppliesBoxMullerToRandomWords) {
    const Philox random{42, 7};
    constexpr std::int64_t kCount = 100'001;
    Tensor doubles = empty({kCount}, {f64}), floats = empty({kCount});
    kernels::normal(cpu_context(), random, 0, 1, doubles.view());
    kernels::normal(cpu_context(), random, 0, 1, floats.view());
    const auto exact = doubles.to_vector(), rounded = floats.to_vector();
    double max_error = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
        const auto u = static_cast<float>((random.word(i & ~1ull) + 0.5) / 0x1p32);
        const double angle = 2 * std::numbers::pi * Philox::to_unit(random.word(i | 1));
        const double radius = std::sqrt(-2 * std::log(double{u}));
        const double expected = radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
        ASSERT_NEAR(exact[i], expected, 1e-14);
        const double ulp = std::ldexp(1.0, std::ilogb(std::max(std::abs(expected), 1e-7)) - 23);
        max_error = std::max(max_error, std::abs(rounded[i] - expected) / ulp);
    }
    EXPECT_LT(max_error, 4);
}

TEST(RandomOps, GiveSameNumbersForSeveralNumbersOfThreads) {
    const auto draw = [] {
        manual_seed(3);
        const Tensor weights = rand({40, 3000});
        return std::vector<Tensor>{weights,
                                   randn({200'001}),
                                   randint(-5, 1000, {200'001}),
                                   dropout(ones({200'001}), 0.3),
                                   multinomial(weights, 7),
                                   multinomial(weights, 50, true)};
    };
    const int before = kernels::num_threads();
    kernels::set_num_threads(1);
    const auto one = draw();
    for (const int threads : {2, 5}) {
        kernels::set_num_threads(threads);
        const auto many = draw();
        for (std::size_t i = 0; i < one.size(); ++i) expect_same_bits(many[i], one[i]);
    }
    kernels::set_num_threads(before);
}

TEST(Generator, AdvancesByNumberOfUsedBlocks) {
    set_generator_state({9, 100});
    rand({5});
    EXPECT_EQ(generator_state(), (GeneratorState{9, 102}));
    randn({4});
    empty({0}).normal_();
    EXPECT_EQ(generator_state(), (GeneratorState{9, 103}));
    // Creating a meta tensor draws no random numbers.
    rand({1000}, {.device = Device::meta()});
    EXPECT_EQ(generator_state(), (GeneratorState{9, 103}));
    manual_seed(4);
    EXPECT_EQ(generator_state(), (GeneratorState{4, 0}));
}

TEST(Generator, GivesDistinctBlocksToConcurrentThreads) {
    manual_seed(1);
    std::array<std::vector<std::uint64_t>, 4> taken;
    std::vector<std::thread> threads;
    for (auto& own_offsets : taken)
        threads.emplace_back([&own_offsets] {
            for (int i = 0; i < 1000; ++i) own_offsets.push_back(take_random(3).offset);
        });
    for (std::thread& thread : threads) thread.join();
    std::set<std::uint64_t> all;
    for (const auto& own_offsets : taken) all.insert(own_offsets.begin(), own_offsets.end());
    EXPECT_EQ(all.size(), 4000u);
    EXPECT_EQ(generator_state().offset, 12'000u);
}

TEST(RandomInPlace, FillsStridedTensorsInOrderAndIncreasesVersions) {
    Tensor x = zeros({3, 8});
    Tensor even = slice(x, 1, 0, 8, 2);
    const auto version = x.version();
    manual_seed(5);
    even.uniform_();
    EXPECT_GT(x.version(), version);
    manual_seed(5);
    expect_same_bits(contiguous(even), rand({3, 4}));
    EXPECT_EQ(slice(x, 1, 1, 8, 2).sum().item(), 0);

    const auto before = even.version();
    x.normal_();
    EXPECT_GT(even.version(), before);
}

TEST(RandomOps, RejectInvalidArguments) {
    Tensor leaf = zeros({2}).set_requires_grad();
    expect_error<UsageError>({"uniform_: a tensor that requires a gradient"},
                             [&] { leaf.uniform_(); });
    Tensor whole = zeros({2}, {i64});
    expect_error<DTypeError>({"normal_: "}, [&] { whole.normal_(); });
    Tensor x = zeros({2});
    expect_error<ValueError>({"uniform_: ", "low is 1, high is 0"}, [&] { x.uniform_(1, 0); });
    expect_error<ValueError>({"normal_: ", "-1"}, [&] { x.normal_(0, -1); });
    expect_error<ValueError>({"randint: ", "[3, 3)"}, [] { randint(3, 3, {1}); });
    expect_error<ValueError>({"randint: ", "uint8", "[0, 257)"},
                             [] { randint(0, 257, {1}, {u8}); });
    expect_error<ValueError>({"dropout: p must be in [0, 1]: 1.5"}, [&] { dropout(x, 1.5); });
}

TEST(Randint, DrawsFromTheWholeRangeOfI32) {
    manual_seed(1);
    const Tensor x = randint(-0x80000000ll, 0x80000000ll, {1000}, {i32});
    EXPECT_LT(min(to(x, f64)).item(), -2.1e9);
    EXPECT_GT(max(to(x, f64)).item(), 2.1e9);
}

TEST(Dropout, UsesSameMaskForGradients) {
    for (const DType dtype : {f64, f32, bf16}) {
        Tensor x = ones({37, 53}, {dtype});
        const Tensor transposed = transpose(x.set_requires_grad(), 0, 1);
        const Tensor y = dropout(transposed, 0.4);
        y.backward(ones_like(y));
        expect_same_bits(to(x.grad(), dtype), contiguous(transpose(y.detach(), 0, 1)));
    }
}

TEST(Multinomial, ReportsRowWithInvalidWeights) {
    const auto draw = [](const std::vector<double>& row, std::int64_t samples, bool replacement) {
        Tensor weights = ones({3, 4});
        Tensor last = weights[2];
        last.copy_(tensor(row, {4}));
        multinomial(weights, samples, replacement);
    };
    expect_error<ValueError>({"multinomial: a weight is negative: row 2 of weights [3, 4]"}, [&] {
        draw({1, -1, 1, 1}, 1, true);
    });
    expect_error<ValueError>({"multinomial: ", "no finite sum: row 2"}, [&] {
        draw({1, NAN, 1, 1}, 1, true);
    });
    expect_error<ValueError>({"multinomial: ", "no finite sum: row 2"}, [&] {
        draw({1, INFINITY, 1, 1}, 1, true);
    });
    expect_error<ValueError>({"multinomial: all weights are zero: row 2"}, [&] {
        draw({0, 0, 0, 0}, 1, true);
    });
    expect_error<ValueError>(
        {"multinomial: fewer nonzero weights than samples: row 2", "3 samples"}, [&] {
            draw({0, 1, 0, 1}, 3, false);
        });
    expect_error<ValueError>({"multinomial: without replacement", "5 samples, weights [4]"},
                             [] { multinomial(ones({4}), 5); });
    draw({0, 1, 0, 1}, 2, false);
    draw({0, 1, 0, 1}, 9, true);
}

TEST(GeneratorScope, ReplacesDefaultGeneratorOnThisThreadOnly) {
    manual_seed(5);
    const Tensor expected = rand({3});
    manual_seed(9);
    const GeneratorState before = generator_state();
    Tensor drawn, other;
    {
        const GeneratorScope scope({5, 0});
        drawn = rand({3});
        EXPECT_EQ(generator_state(), (GeneratorState{5, 1}));
        {
            const GeneratorScope inner({5, 0});
            expect_same_bits(rand({3}), expected);
        }
        EXPECT_EQ(generator_state(), (GeneratorState{5, 1}));
        std::thread([&] { other = rand({3}); }).join();  // draws from the default generator
        set_generator_state({7, 2});
    }
    expect_same_bits(drawn, expected);
    EXPECT_EQ(generator_state(), (GeneratorState{9, before.offset + 1}));
    set_generator_state(before);
    expect_same_bits(other, rand({3}));
}

}  // namespace

}  // namespace axle::tests
