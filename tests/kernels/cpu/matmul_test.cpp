// Compares products of bf16 with sums in double, for sizes at the edges of tiles and panels and for
// all layouts.
#include "kernels/ops/matmul.h"

#include "kernels/cpu/targets.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/matmul/gemm.h"
#include "kernels/thread_pool.h"

namespace axle::kernels {
namespace {

// Rows of the layout `aligned` begin at multiples of 64 bytes, and have gaps of 64 bytes.
enum class Layout { rows, columns, strided, aligned };

// A bf16 matrix whose memory is NaN in the gaps between its elements.
struct Matrix {
    std::int64_t rows, columns, row_stride, column_stride;
    std::vector<BFloat16> memory;
    std::int64_t start = 0;  // of the first element in memory

    Matrix(std::int64_t rows_, std::int64_t columns_, Layout layout, unsigned seed)
        : rows(rows_), columns(columns_) {
        const bool down = layout == Layout::columns;
        column_stride = down ? rows + 1 : 1;
        row_stride = down ? 1 : columns + 1;
        if (layout == Layout::strided) column_stride = 3, row_stride = 3 * columns + 2;
        if (layout == Layout::aligned) row_stride = (columns + 31) / 32 * 32 + 32;
        const std::int64_t last = (rows - 1) * row_stride + (columns - 1) * column_stride;
        const BFloat16 nan(std::numeric_limits<float>::quiet_NaN());
        memory.assign(static_cast<std::size_t>(std::max<std::int64_t>(last, 0) + 1 + 32), nan);
        while (layout == Layout::aligned &&
               reinterpret_cast<std::uintptr_t>(memory.data() + start) % 64 != 0)
            ++start;
        for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t j = 0; j < columns; ++j) {
                seed = 1664525 * seed + 1013904223;
                at(i, j) = BFloat16(static_cast<float>(seed >> 8) / 0x1p23f - 1.0f);
            }
        }
    }
    BFloat16& at(std::int64_t i, std::int64_t j) {
        return memory[static_cast<std::size_t>(start + i * row_stride + j * column_stride)];
    }
    View view() {
        View v;
        v.data = memory.data() + start, v.dtype = DType::bf16, v.ndim = 2;
        v.shape[0] = rows, v.shape[1] = columns;
        v.stride[0] = row_stride, v.stride[1] = column_stride;
        return v;
    }
};

// Returns the result c of matmul(), with the given dtype of c. Before the call, the elements of c
// are 0.5. If the dtype is f32, the sums are not rounded to bf16.
std::vector<float> product(Matrix& a, Matrix& b, DType dtype = DType::f32,
                           const MatmulEpilogue& epilogue = {}) {
    std::vector<float> c(static_cast<std::size_t>(a.rows * b.columns), 0.5f);
    std::vector<BFloat16> rounded(c.size(), BFloat16(0.5f));
    View v;
    v.data = dtype == DType::f32 ? static_cast<void*>(c.data()) : rounded.data();
    v.dtype = dtype, v.ndim = 2;
    v.shape[0] = a.rows, v.shape[1] = b.columns;
    v.stride[0] = b.columns, v.stride[1] = 1;
    Cpu cpu;
    matmul(cpu, a.view(), b.view(), v, epilogue);
    if (dtype == DType::bf16) std::copy(rounded.begin(), rounded.end(), c.begin());
    return c;
}

// Expects that every sum of K terms has an error of at most (K + 3) 2^-24 times (1 + the sum of the
// terms' magnitudes). A bf16 c also has a rounding error.
void expect_close(Matrix& a, Matrix& b, const std::vector<float>& c, DType dtype, double start,
                  double bias) {
    const double depth = static_cast<double>(a.columns);
    const double rounding = dtype == DType::f32 ? 0.0 : 0x1p-8;
    for (std::int64_t i = 0; i < a.rows; ++i) {
        for (std::int64_t j = 0; j < b.columns; ++j) {
            double sum = start + bias, magnitudes = 1;
            for (std::int64_t p = 0; p < a.columns; ++p) {
                const double term =
                    static_cast<double>(float(a.at(i, p))) * static_cast<double>(float(b.at(p, j)));
                sum += term, magnitudes += std::fabs(term);
            }
            const double got = c[static_cast<std::size_t>(i * b.columns + j)];
            const double allowed = (depth + 3) * 0x1p-24 * magnitudes + rounding * std::fabs(sum);
            ASSERT_NEAR(got, sum, allowed)
                << a.rows << "x" << b.columns << "x" << a.columns << " at " << i << ", " << j;
        }
    }
}

class BFloat16Matmul : public testing::TestWithParam<std::tuple<Layout, Layout>> {};

TEST_P(BFloat16Matmul, MatchesF64ResultsForSizesAroundMultiplesOfTiles) {
    const auto [left, right] = GetParam();
    const std::int64_t sizes[][3] = {{2, 2, 1},      {2, 3, 2},     {3, 2, 3},    {13, 15, 31},
                                     {14, 16, 32},   {15, 17, 33},  {29, 33, 65}, {28, 65, 7},
                                     {5, 100, 63},   {101, 31, 64}, {3, 3, 1},    {16, 47, 771},
                                     {31, 34, 4097}, {32, 32, 96},  {65, 49, 800}};
    for (const auto& [m, n, k] : sizes) {
        Matrix a(m, k, left, 1), b(k, n, right, 2);
        expect_close(a, b, product(a, b), DType::f32, 0, 0);
        expect_close(a, b, product(a, b, DType::bf16), DType::bf16, 0, 0);
    }
}

TEST_P(BFloat16Matmul, AddsBiasAndAccumulatesBeforeRounding) {
    const auto [left, right] = GetParam();
    for (const std::int64_t k : {std::int64_t{9}, std::int64_t{2501}}) {
        Matrix a(17, k, left, 3), b(k, 35, right, 4);
        std::vector<float> ones(35, 1.0f);
        MatmulEpilogue epilogue = {.accumulate = true};
        epilogue.bias = {};
        View bias;
        bias.data = ones.data(), bias.dtype = DType::f32, bias.ndim = 1;
        bias.shape[0] = 35, bias.stride[0] = 1;
        epilogue.bias = bias;
        for (const DType dtype : {DType::f32, DType::bf16})
            expect_close(a, b, product(a, b, dtype, epilogue), dtype, 0.5, 1.0);
    }
}

TEST_P(BFloat16Matmul, GivesTheSameBitsForSeveralNumbersOfThreads) {
    const auto [left, right] = GetParam();
    const int before = num_threads();
    for (const std::int64_t k : {std::int64_t{257}, std::int64_t{2501}}) {
        Matrix a(150, k, left, 5), b(k, 170, right, 6);
        set_num_threads(1);
        const std::vector<float> one = product(a, b);
        for (const int threads : {2, 3, 5}) {
            set_num_threads(threads);
            const std::vector<float> many = product(a, b);
            for (std::size_t i = 0; i < one.size(); ++i)
                ASSERT_EQ(std::bit_cast<std::uint32_t>(one[i]),
                          std::bit_cast<std::uint32_t>(many[i]));
        }
    }
    set_num_threads(before);
}

INSTANTIATE_TEST_SUITE_P(Layouts, BFloat16Matmul,
                         testing::Combine(testing::Values(Layout::rows, Layout::columns,
                                                          Layout::strided, Layout::aligned),
                                          testing::Values(Layout::rows, Layout::columns,
                                                          Layout::strided)));

TEST(BFloat16Product, IsZeroForAnEmptyInnerDimension) {
    Matrix a(20, 0, Layout::rows, 1), b(0, 40, Layout::rows, 2);
    for (const float sum : product(a, b)) ASSERT_EQ(sum, 0.0f);
}

TEST(BFloat16Product, PropagatesInfinitiesAndNaNs) {
    Matrix a(3, 5, Layout::rows, 1), b(5, 4, Layout::rows, 2);
    a.at(0, 4) = BFloat16(INFINITY);
    a.at(1, 2) = BFloat16(NAN);
    b.at(4, 0) = BFloat16(1.0f);
    const std::vector<float> c = product(a, b);
    EXPECT_EQ(c[0], INFINITY);
    EXPECT_TRUE(std::isnan(c[4]));
    EXPECT_TRUE(std::isfinite(c[8]));
}

// Expects the result of uses_bf16_pairs() in a new process with AXLE_CPU_TARGET=target.
void expect_pairs(const char* target, bool expected) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // starts this test program again
    ASSERT_EQ(::setenv("AXLE_CPU_TARGET", target, 1), 0);
    EXPECT_EXIT(std::exit(uses_bf16_pairs() ? 1 : 0), testing::ExitedWithCode(expected ? 1 : 0),
                "");
    ASSERT_EQ(::unsetenv("AXLE_CPU_TARGET"), 0);
}

TEST(BFloat16Product, UsesTheBf16InstructionForTheTargetAvx512Bf16ButNotForAvx512) {
    if (!multiplies_bf16()) GTEST_SKIP() << "the CPU has no AVX512_BF16";
    expect_pairs("avx512_bf16", true);
    expect_pairs("avx512", false);
}

}  // namespace
}  // namespace axle::kernels
