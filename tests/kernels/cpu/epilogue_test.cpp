// Tests the activations in the epilogue of products on a CPU: the values, the outputs `pre` with
// arguments or slopes, and the multiplication by slopes.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/lanes.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/pointwise.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

constexpr double kUnset = 7;

// Numbers of one dtype in rows with a gap after each. If `transposed` is true, the columns are
// contiguous instead.
class Numbers {
  public:
    Numbers(DType dtype, std::int64_t rows, std::int64_t columns, bool transposed = false)
        : memory_(static_cast<std::size_t>((transposed ? columns : rows) *
                                           ((transposed ? rows : columns) + 3))) {
        view_.data = memory_.data(), view_.dtype = dtype, view_.ndim = 2;
        view_.shape[0] = rows, view_.shape[1] = columns;
        view_.stride[0] = transposed ? 1 : columns + 3;
        view_.stride[1] = transposed ? rows + 3 : 1;
        for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t j = 0; j < columns; ++j) set(i, j, kUnset);
    }
    View view() { return view_; }
    void set(std::int64_t i, std::int64_t j, double x) {
        store_lanes<double>(&x, address(i, j), view_.dtype, 1, 1);
    }
    double get(std::int64_t i, std::int64_t j) const {
        double x;
        return *load_lanes<double>(address(i, j), view_.dtype, 1, 1, &x);
    }

  private:
    void* address(std::int64_t i, std::int64_t j) const {
        return at(view_.data, view_.dtype, i * view_.stride[0] + j * view_.stride[1]);
    }

    std::vector<double> memory_;  // 8 bytes for each number of any dtype
    View view_;
};

// A product whose sums are exact in every dtype: sum (i, j) is a small multiple of 1/4.
struct Problem {
    Problem(DType dtype, std::int64_t m, std::int64_t n, bool transposed)
        : a(dtype, m, 3), b(dtype, 3, n), c(dtype, m, n, transposed), aux(dtype, m, n, transposed) {
        for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t p = 0; p < 3; ++p)
                a.set(i, p, static_cast<double>((i + p) % 5 - 2) / 2);
        for (std::int64_t p = 0; p < 3; ++p)
            for (std::int64_t j = 0; j < n; ++j)
                b.set(p, j, static_cast<double>((3 * j + p) % 7 - 3) / 2);
    }
    double sum(std::int64_t i, std::int64_t j) const {
        double total = 0;
        for (std::int64_t p = 0; p < 3; ++p) total += a.get(i, p) * b.get(p, j);
        return total;
    }
    void run(const MatmulEpilogue& epilogue) {
        Cpu cpu;
        matmul(cpu, a.view(), b.view(), c.view(), epilogue);
    }
    Numbers a, b, c, aux;
};

double value(Activation activation, double x) {
    return formula::visit_activation(activation, [x](auto f) { return f.value(x); });
}
double slope(Activation activation, double x) {
    return formula::visit_activation(activation, [x](auto f) { return f.slope(x); });
}

struct Case {
    DType dtype;
    std::int64_t m, n;
    bool transposed;
};
// Products of tiles, of few rows and of single rows and columns.
constexpr Case kCases[] = {
    {DType::f32, 37, 53, false}, {DType::f32, 37, 53, true},   {DType::f32, 1, 40, false},
    {DType::f32, 40, 1, false},  {DType::f32, 3, 70, false},   {DType::f64, 20, 33, false},
    {DType::f64, 1, 33, true},   {DType::bf16, 37, 53, false}, {DType::bf16, 37, 53, true},
    {DType::bf16, 1, 40, false}, {DType::f16, 37, 53, false},
};
constexpr Activation kActivations[] = {Activation::gelu, Activation::gelu_tanh, Activation::silu};

double tolerance(DType dtype, double expected) {
    if (dtype == DType::bf16) return 1e-6 + 0x1p-8 * std::abs(expected);
    if (dtype == DType::f16) return 1e-6 + 0x1p-11 * std::abs(expected);
    return dtype == DType::f32 ? 1e-6 : 1e-14;
}

// Calls check(i, j) for each element of c.
template <class Check>
void for_each_element(const Case& c, Check check) {
    SCOPED_TRACE(std::to_string(c.m) + " x " + std::to_string(c.n) + ", dtype " +
                 std::to_string(static_cast<int>(c.dtype)));
    for (std::int64_t i = 0; i < c.m; ++i)
        for (std::int64_t j = 0; j < c.n; ++j) ASSERT_NO_FATAL_FAILURE(check(i, j));
}

TEST(MatmulEpilogue, StoresTheArgumentOrTheSlopeOfTheActivation) {
    for (const Case& c : kCases)
        for (const Activation activation : kActivations)
            for (const bool slopes : {false, true}) {
                Problem p(c.dtype, c.m, c.n, c.transposed);
                p.run({.activation = activation, .pre = p.aux.view(), .stores_slopes = slopes});
                for_each_element(c, [&](std::int64_t i, std::int64_t j) {
                    const double sum = p.sum(i, j), y = value(activation, sum);
                    const double kept = slopes ? slope(activation, sum) : sum;
                    ASSERT_NEAR(p.c.get(i, j), y, tolerance(c.dtype, y));
                    ASSERT_NEAR(p.aux.get(i, j), kept, tolerance(c.dtype, kept));
                });
            }
}

TEST(MatmulEpilogue, MultipliesTheProductByGivenOrComputedSlopes) {
    for (const Case& c : kCases)
        for (const Activation activation : kActivations)
            for (const bool slopes : {false, true}) {
                Problem p(c.dtype, c.m, c.n, c.transposed);
                const auto at = [](std::int64_t i, std::int64_t j) {
                    return static_cast<double>((i + 2 * j) % 9 - 4) / 4;
                };
                for (std::int64_t i = 0; i < c.m; ++i)
                    for (std::int64_t j = 0; j < c.n; ++j) p.aux.set(i, j, at(i, j));
                p.run(
                    {.activation = activation, .stores_slopes = slopes, .slope_of = p.aux.view()});
                for_each_element(c, [&](std::int64_t i, std::int64_t j) {
                    const double factor = slopes ? at(i, j) : slope(activation, at(i, j));
                    const double expected = p.sum(i, j) * factor;
                    ASSERT_NEAR(p.c.get(i, j), expected, 4 * tolerance(c.dtype, expected));
                });
            }
}

TEST(MatmulEpilogue, IgnoresSlopesWithoutAnActivation) {
    Problem p(DType::f32, 5, 40, false);
    p.run({.stores_slopes = true, .slope_of = p.aux.view()});
    for (std::int64_t j = 0; j < 40; ++j) ASSERT_EQ(p.c.get(2, j), p.sum(2, j)) << j;
}

}  // namespace
}  // namespace axle::kernels
