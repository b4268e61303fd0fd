// Compares the elementary functions of the SIMD packs with the C library in double, in ulps of the
// result. Also tests that results do not depend on the lane, and that partial packs do not access
// memory beyond their last element.
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/ops/pointwise.h"

namespace axle::kernels {
namespace {

View view_of(std::vector<float>& values) {
    View v;
    v.data = values.data();
    v.ndim = 1;
    v.shape[0] = static_cast<std::int64_t>(values.size());
    v.stride[0] = 1;
    return v;
}

template <class F>
std::vector<float> apply(F f, std::vector<float> x) {
    std::vector<float> y(x.size());
    Cpu cpu;
    unary(cpu, f, view_of(x), view_of(y));
    return y;
}

// Returns every 1009th float of an interval.
std::vector<float> samples(float low, float high) {
    std::vector<float> x;
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 1009) {
        const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
        if (value >= low && value <= high) x.push_back(value);
    }
    return x;
}

template <class F>
double worst_ulp(F f, double (*exact)(double), float low, float high) {
    const std::vector<float> x = samples(low, high);
    const std::vector<float> y = apply(f, x);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double expected = exact(x[i]);
        const float magnitude = std::fabs(static_cast<float>(expected));
        const double ulp = static_cast<double>(std::nextafter(magnitude, INFINITY)) - magnitude;
        const double error = std::fabs(y[i] - expected) / ulp;
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

TEST(SimdPacks, ComputeExpLogTanhWithinTheDocumentedUlps) {
    EXPECT_LE(worst_ulp(formula::Exp{}, std::exp, -103.0f, 88.7f), 1.1);
    EXPECT_LE(worst_ulp(formula::Log{}, std::log, 1e-44f, 3e38f), 1.0);
    EXPECT_LE(worst_ulp(formula::Tanh{}, std::tanh, -20.0f, 20.0f), 2.0);
}

// If x <= 0, Elu computes alpha scale expm1(input_scale x).
TEST(SimdPacks, ComputeExpm1WithinTheDocumentedUlpsUntilItOverflows) {
    constexpr formula::Elu kNegated{.alpha = 1, .scale = 1, .input_scale = -1};
    constexpr formula::Elu kSame{.alpha = 1, .scale = 1, .input_scale = 1};
    const auto negated = [](double x) { return std::expm1(-x); };
    EXPECT_LE(worst_ulp(kNegated, negated, -88.7f, -1e-30f), 4.0);
    EXPECT_LE(worst_ulp(kSame, std::expm1, -104.0f, -1e-30f), 4.0);
    EXPECT_EQ(apply(kNegated, {-89.0f})[0], INFINITY);
}

TEST(SimdPacks, ComputeTheSlopeOfGeluWithinTheDocumentedError) {
    std::vector<float> x = samples(-20.0f, 20.0f), slope(x.size(), 1.0f);
    Cpu cpu;
    unary_slope(cpu, formula::Gelu{}, view_of(slope), view_of(x), view_of(slope));
    for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_NEAR(slope[i], formula::gelu_slope(double{x[i]}), 3e-7) << x[i];
}

// The relative error of GELU for x < 0 is that of Phi(x).
TEST(SimdPacks, ComputeGeluWithinTheDocumentedErrors) {
    const std::vector<float> x = samples(-9.0f, 9.0f), y = apply(formula::Gelu{}, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double exact = x[i] * 0.5 * std::erfc(-x[i] * std::sqrt(0.5));
        ASSERT_NEAR(y[i], exact, 2e-7 * std::fabs(x[i]) + 6e-8 * std::fabs(exact) + 1e-44) << x[i];
        if (x[i] < 0) {
            ASSERT_NEAR(y[i], exact, 4e-6 * std::fabs(exact) + 1e-44) << x[i];
        }
    }
}

TEST(SimdPacks, ComputeTheLimitsOfGelu) {
    EXPECT_EQ(apply(formula::Gelu{}, {0.0f, 100.0f, -100.0f, 1e30f, -1e30f, INFINITY}),
              (std::vector<float>{0.0f, 100.0f, 0.0f, 1e30f, 0.0f, INFINITY}));
    EXPECT_TRUE(std::isnan(apply(formula::Gelu{}, {NAN})[0]));
}

// An underflow would be slow, and the scores of hidden keys are -infinity.
TEST(SimdPacks, ComputeExpOfMinusInfinityWithoutUnderflow) {
    std::feclearexcept(FE_ALL_EXCEPT);
    EXPECT_EQ(apply(formula::Exp{}, {-INFINITY, -1e30f, -104.0f}), std::vector<float>(3));
    EXPECT_EQ(std::fetestexcept(FE_UNDERFLOW), 0);
}

TEST(SimdPacks, ComputeTheLimitsOfTheSlopeOfGelu) {
    std::vector<float> x = {0.0f, -0.0f, 1e-45f, 100.0f, -100.0f, 1e30f, -1e30f, NAN};
    std::vector<float> slope(x.size(), 1.0f);
    Cpu cpu;
    unary_slope(cpu, formula::Gelu{}, view_of(slope), view_of(x), view_of(slope));
    EXPECT_TRUE(std::isnan(slope.back()));
    slope.pop_back();
    EXPECT_EQ(slope, (std::vector<float>{0.5f, 0.5f, 0.5f, 1.0f, 0.0f, 1.0f, 0.0f}));
}

TEST(SimdPacks, HandleSpecialValuesLikeTheCLibrary) {
    const float inf = INFINITY, nan = NAN;
    const std::vector<float> x = {inf,  -inf,  nan,    0.0f,   -0.0f,
                                  1.0f, -1.0f, 1e-45f, 200.0f, -200.0f};
    const auto expect = [&](const std::vector<float>& y, double (*exact)(double)) {
        for (std::size_t i = 0; i < x.size(); ++i) {
            const auto expected = static_cast<float>(exact(x[i]));
            if (std::isnan(expected))
                EXPECT_TRUE(std::isnan(y[i])) << x[i];
            else if (std::isinf(expected) || expected == 0)
                EXPECT_EQ(y[i], expected) << x[i];
            else
                EXPECT_NEAR(y[i], expected, 1e-6 * std::fabs(expected) + 1e-44) << x[i];
        }
    };
    expect(apply(formula::Exp{}, x), std::exp);
    expect(apply(formula::Log{}, x), std::log);
    expect(apply(formula::Tanh{}, x), std::tanh);
}

TEST(SimdPacks, GiveTheSameBitsInAnyLane) {
    std::vector<float> x(67);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.1f * static_cast<float>(i) - 3.0f;
    const std::vector<float> together = apply(formula::Gelu{}, x);
    for (std::size_t i = 0; i < x.size(); ++i)
        EXPECT_EQ(apply(formula::Gelu{}, {x[i]})[0], together[i]) << i;
}

// Memory whose end is followed by a page that must not be accessed.
class GuardedPage {
  public:
    GuardedPage()
        : size_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
          memory_(mmap(nullptr, 2 * size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0)) {
        mprotect(static_cast<char*>(memory_) + size_, size_, PROT_NONE);
    }
    ~GuardedPage() { munmap(memory_, 2 * size_); }
    GuardedPage(const GuardedPage&) = delete;
    GuardedPage& operator=(const GuardedPage&) = delete;

    // Returns the last n floats before the guard.
    float* last(std::int64_t n) const {
        return reinterpret_cast<float*>(static_cast<char*>(memory_) + size_) - n;
    }

  private:
    std::size_t size_;
    void* memory_;
};

TEST(SimdPacks, DoNotAccessMemoryBeyondTheLastElement) {
    const GuardedPage in, out;
    Cpu cpu;
    for (std::int64_t n = 1; n <= 40; ++n) {
        View x, y;
        x.ndim = y.ndim = 1;
        x.shape[0] = y.shape[0] = n;
        x.stride[0] = y.stride[0] = 1;
        x.data = in.last(n), y.data = out.last(n);
        for (std::int64_t i = 0; i < n; ++i) in.last(n)[i] = static_cast<float>(i);
        binary(cpu, formula::Add{}, x, x, y);
        for (std::int64_t i = 0; i < n; ++i) EXPECT_EQ(out.last(n)[i], 2 * static_cast<float>(i));
    }
}

}  // namespace
}  // namespace axle::kernels
