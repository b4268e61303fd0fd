// Tests the kernels of optimizers and of gradient clipping on raw memory.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/exec.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/rounding.h"
#include "kernels/philox.h"
#include "kernels/thread_pool.h"

namespace axle {
namespace {

using kernels::AdamGroup;
using kernels::SgdGroup;
using kernels::Slot;
using kernels::StepScalars;
using Runs = std::vector<kernels::Run>;

constexpr AdamGroup kAdamW = {
    .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decoupled = true};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Parameters of the given sizes, with gradients and state. Lane is the type of the state.
template <class Param, class Grad, class Lane>
struct Model {
    explicit Model(std::vector<std::int64_t> sizes) {
        for (const std::int64_t n : sizes) total += n;
        const auto size = static_cast<std::size_t>(total);
        p.resize(size), g.resize(size), m.resize(size), v.resize(size), largest.resize(size);
        steps.resize(sizes.size());
        for (std::size_t i = 0; i < size; ++i) {
            p[i] = Param(static_cast<float>(std::cos(0.37 * static_cast<double>(i))));
            g[i] = Grad(static_cast<float>(std::sin(0.11 * static_cast<double>(i * i % 1009))));
        }
        std::int64_t begin = 0;
        for (std::size_t s = 0; s < sizes.size(); ++s) {
            Slot slot;
            slot.param = p.data() + begin;
            slot.grad = g.data() + begin;
            slot.state[0] = m.data() + begin;
            slot.state[1] = v.data() + begin;
            slot.step = &steps[s];
            slot.numel = sizes[s];
            slot.param_dtype = dtype_of<Param>;
            slot.grad_dtype = dtype_of<Grad>;
            kernels::append(table, slot);
            begin += sizes[s];
        }
    }

    std::int64_t total = 0;
    std::vector<Param> p;
    std::vector<Grad> g;
    std::vector<Lane> m, v, largest;
    std::vector<float> steps;
    std::vector<Slot> table;
};

const std::vector<std::int64_t> kSizes = {0, 5, 70000, 0, 1, 33, 4096, 0};

TEST(OptimizerKernels, MatchF64ResultsForAdamInF32) {
    Model<float, float, float> single(kSizes);
    Model<double, double, double> exact(kSizes);
    kernels::Cpu on;
    for (int step = 0; step < 10; ++step) {
        kernels::adam(on, single.table, &kAdamW, nullptr);
        kernels::adam(on, exact.table, &kAdamW, nullptr);
    }
    for (std::size_t i = 0; i < single.p.size(); ++i)
        ASSERT_NEAR(single.p[i], exact.p[i], 2e-6) << i;
}

TEST(OptimizerKernels, MatchF64ResultsForSgdInF32) {
    const SgdGroup group = {.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
    Model<float, float, float> single(kSizes);
    Model<double, double, double> exact(kSizes);
    kernels::Cpu on;
    for (int step = 0; step < 10; ++step) {
        kernels::sgd(on, single.table, &group, nullptr);
        kernels::sgd(on, exact.table, &group, nullptr);
    }
    for (std::size_t i = 0; i < single.p.size(); ++i)
        ASSERT_NEAR(single.p[i], exact.p[i], 2e-6) << i;
}

TEST(OptimizerKernels, RoundHalfPrecisionParametersOnceFromMasterWeights) {
    Model<BFloat16, float, float> half({1000});
    std::vector<float> master(half.p.begin(), half.p.end());
    half.table[0].master = master.data();
    Model<float, float, float> single({1000});
    single.p = master;
    kernels::Cpu on;
    for (int step = 0; step < 5; ++step) {
        kernels::adam(on, half.table, &kAdamW, nullptr);
        kernels::adam(on, single.table, &kAdamW, nullptr);
    }
    EXPECT_EQ(master, single.p);
    for (std::size_t i = 0; i < half.p.size(); ++i)
        ASSERT_EQ(half.p[i].bits, BFloat16(master[i]).bits) << i;
}

TEST(OptimizerKernels, UpdateHalfPrecisionParametersWithoutMasterWeights) {
    Model<Half, Half, float> half({777});
    Model<float, float, float> single({777});
    for (std::size_t i = 0; i < 777; ++i) single.p[i] = half.p[i], single.g[i] = half.g[i];
    kernels::Cpu on;
    kernels::adam(on, half.table, &kAdamW, nullptr);
    kernels::adam(on, single.table, &kAdamW, nullptr);
    for (std::size_t i = 0; i < 777; ++i) ASSERT_EQ(half.p[i].bits, Half(single.p[i]).bits) << i;
    EXPECT_EQ(half.m, single.m);
}

// Returns the 16 random bits that kernels/ops/rounding.h assigns to element i.
std::uint32_t half_of(const kernels::Philox& random, std::int64_t i) {
    const auto word = random.word(static_cast<std::uint64_t>(i) / 2);
    return i % 2 == 0 ? word & 0xffff : word >> 16;
}

template <class T>
void expect_stochastic(const std::vector<std::int64_t>& sizes) {
    Model<T, float, float> rounded(sizes);
    Model<float, float, float> exact(sizes);
    for (Slot& slot : rounded.table) {
        slot.stochastic = true;
        slot.seed = 1000 + static_cast<std::uint64_t>(&slot - rounded.table.data());
    }
    kernels::Cpu on;
    int moved = 0;
    for (int step = 1; step <= 3; ++step) {
        for (std::size_t i = 0; i < exact.p.size(); ++i) exact.p[i] = rounded.p[i];
        kernels::adam(on, rounded.table, &kAdamW, nullptr);
        kernels::adam(on, exact.table, &kAdamW, nullptr);
        for (const Slot& slot : rounded.table) {
            const kernels::Philox random = {slot.seed, static_cast<std::uint64_t>(step) << 40};
            for (std::int64_t i = 0; i < slot.numel; ++i) {
                const auto at = static_cast<std::size_t>(slot.begin + i);
                const T expected =
                    kernels::round_stochastically<T>(exact.p[at], half_of(random, i));
                ASSERT_EQ(rounded.p[at].bits, expected.bits) << step << ": " << at;
                moved += expected.bits != T(exact.p[at]).bits;
            }
        }
    }
    EXPECT_GT(moved, rounded.total / 2);
}

TEST(StochasticRounding, DependsOnlyOnSeedStepAndElement) {
    expect_stochastic<BFloat16>(kSizes);
    expect_stochastic<Half>(kSizes);
}

TEST(StochasticRounding, IsUnbiased) {
    constexpr std::int64_t kCount = 200000;
    // 0.3 times the spacing of bf16 above 1. Rounding to nearest discards such an update.
    constexpr double kUpdate = 0.3 * 0x1p-7;
    for (const bool stochastic : {false, true}) {
        Model<BFloat16, float, float> model({kCount});
        std::fill(model.p.begin(), model.p.end(), BFloat16(1.0f));
        std::fill(model.g.begin(), model.g.end(), static_cast<float>(-kUpdate));
        model.table[0].stochastic = stochastic;
        model.table[0].seed = 5;
        const SgdGroup group = {.lr = 1};
        kernels::Cpu on;
        kernels::sgd(on, model.table, &group, nullptr);
        double mean = 0;
        for (const BFloat16 x : model.p) mean += x;
        mean /= kCount;
        const double sigma = 0x1p-7 * std::sqrt(0.3 * 0.7 / kCount);
        if (stochastic)
            EXPECT_NEAR(mean, 1 + kUpdate, 4 * sigma);
        else
            EXPECT_EQ(mean, 1);
    }
}

TEST(OptimizerKernels, UnscaleAndClipGradients) {
    Model<double, double, double> scaled(kSizes), plain(kSizes);
    for (double& g : scaled.g) g *= 1024;
    const StepScalars scalars = {.inv_scale = 1.0 / 1024, .clip = 0.25};
    for (double& g : plain.g) g *= 0.25;
    kernels::Cpu on;
    kernels::adam(on, scaled.table, &kAdamW, &scalars);
    kernels::adam(on, plain.table, &kAdamW, nullptr);
    EXPECT_EQ(scaled.p, plain.p);
    EXPECT_EQ(scaled.v, plain.v);
}

TEST(OptimizerKernels, KeepParametersAndStepCountsOnFoundInf) {
    Model<float, float, float> model(kSizes);
    const std::vector<float> before = model.p;
    const StepScalars scalars = {.found_inf = 1};
    const SgdGroup group = {.lr = 1, .momentum = 0.9};
    kernels::Cpu on;
    kernels::adam(on, model.table, &kAdamW, &scalars);
    kernels::sgd(on, model.table, &group, &scalars);
    EXPECT_EQ(model.p, before);
    EXPECT_EQ(model.steps, std::vector<float>(kSizes.size(), 0.0f));
}

TEST(OptimizerKernels, GiveTheSameResultWithOneAndThreeThreads) {
    const int threads = kernels::num_threads();
    std::vector<float> params;
    std::vector<std::uint64_t> norms;
    for (const int n : {1, 3}) {
        kernels::set_num_threads(n);
        Model<float, float, float> model({100000, 3, 40000, 250001});
        kernels::Cpu on;
        Runs runs;
        kernels::append(runs, kernels::Run{.data = model.g.data(), .numel = model.total});
        double norm = 0;
        kernels::norm(on, runs, 2, &norm);
        kernels::adam(on, model.table, &kAdamW, nullptr);
        if (n == 1) params = model.p;
        EXPECT_EQ(params, model.p);
        norms.push_back(std::bit_cast<std::uint64_t>(norm));
    }
    kernels::set_num_threads(threads);
    EXPECT_EQ(norms[0], norms[1]);
}

// A table of tensors with several dtypes and lengths. The f32 tensor is longer than a chunk.
struct Rows {
    Rows() {
        for (int i = 0; i < 40003; ++i) singles.push_back(std::sin(0.1f * static_cast<float>(i)));
        for (int i = 0; i < 71; ++i) doubles.push_back(std::cos(0.3 * i));
        for (int i = 0; i < 1500; ++i)
            halves.push_back(BFloat16(0.01f * static_cast<float>(i % 100)));
        kernels::append(runs, kernels::Run{singles.data(), 0, std::ssize(singles), f32});
        kernels::append(runs, kernels::Run{nullptr, 0, 0, f32});
        kernels::append(runs, kernels::Run{doubles.data(), 0, std::ssize(doubles), f64});
        kernels::append(runs, kernels::Run{halves.data(), 0, std::ssize(halves), bf16});
    }
    std::vector<double> all() const {
        std::vector<double> values(singles.begin(), singles.end());
        values.insert(values.end(), doubles.begin(), doubles.end());
        for (const BFloat16 h : halves) values.push_back(h);
        return values;
    }
    double norm(double p) const {
        kernels::Cpu on;
        double result = -1;
        kernels::norm(on, runs, p, &result);
        return result;
    }

    std::vector<float> singles;
    std::vector<double> doubles;
    std::vector<BFloat16> halves;
    Runs runs;
};

TEST(GradientKernels, ComputeNormsOverMixedDTypes) {
    const Rows rows;
    for (const double p : {1.0, 2.0, 3.0, 0.5, kInfinity}) {
        double expected = 0;
        for (const double x : rows.all())
            expected = std::isinf(p) ? std::max(expected, std::abs(x))
                                     : expected + std::pow(std::abs(x), p);
        if (!std::isinf(p)) expected = std::pow(expected, 1 / p);
        EXPECT_NEAR(rows.norm(p) / expected, 1, 1e-12) << p;
    }
}

TEST(GradientKernels, ComputeNormsOfLargeGradientsWithoutOverflow) {
    std::vector<float> huge(100, 1e30f);
    Runs runs;
    kernels::append(runs, kernels::Run{.data = huge.data(), .numel = 100});
    kernels::Cpu on;
    double norm = 0;
    kernels::norm(on, runs, 2, &norm);
    EXPECT_NEAR(norm / 1e31, 1, 1e-6);
}

TEST(GradientKernels, FindNonFiniteElementsAndPropagateNaNsInNorms) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
        for (const std::size_t at : {0, 17, 32768, 40002}) {
            Rows rows;
            kernels::Cpu on;
            double found = 0;
            kernels::find_non_finite(on, rows.runs, &found);
            EXPECT_EQ(found, 0);
            rows.singles[at] = bad;
            kernels::find_non_finite(on, rows.runs, &found);
            EXPECT_EQ(found, 1) << bad << " at " << at;
            EXPECT_EQ(std::isnan(rows.norm(2)), std::isnan(bad));
            EXPECT_EQ(std::isnan(rows.norm(kInfinity)), std::isnan(bad));
        }
    }
}

TEST(GradientKernels, ScaleAndClampMixedDTypes) {
    Rows rows;
    const std::vector<double> before = rows.all();
    kernels::Cpu on;
    const double factor = 4;
    kernels::scale(on, rows.runs, &factor);
    std::vector<double> after = rows.all();
    for (std::size_t i = 0; i < after.size(); ++i) ASSERT_EQ(after[i], 4 * before[i]) << i;
    rows.singles[3] = NAN;
    kernels::clamp(on, rows.runs, -0.5, 1.5);
    after = rows.all();
    for (std::size_t i = 0; i < after.size(); ++i) {
        if (i == 3) continue;
        ASSERT_EQ(after[i], std::min(1.5, std::max(-0.5, 4 * before[i]))) << i;
    }
    EXPECT_TRUE(std::isnan(rows.singles[3]));
}

}  // namespace
}  // namespace axle
