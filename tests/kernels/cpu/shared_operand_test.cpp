// Products whose tasks share packed operands. One thread never shares, so its results are the
// expected ones.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/matmul/gemm_grid.h"
#include "kernels/ops/matmul.h"
#include "kernels/thread_pool.h"

namespace axle::kernels {
namespace {

struct Sizes {
    std::int64_t m, n, k;
};

constexpr Sizes kSizes[] = {{131, 1001, 2403}, {1003, 67, 1771}, {769, 513, 131}, {400, 640, 1030}};

Grid grid_of(const Sizes& sizes, int threads) {
    const GemmKernels<float>& kernels = gemm_kernels<float>();
    return choose_grid({.m = sizes.m,
                        .n = sizes.n,
                        .depth = sizes.k,
                        .batches = 1,
                        .max_rows = kernels.max_rows,
                        .row_quantum = 2,
                        .lanes = kernels.lanes,
                        .max_columns = 1024,
                        .speed = 1,
                        .a_in_place = false,
                        .b_in_place = false},
                       threads);
}

template <class T>
class SharedOperands : public testing::Test {
  protected:
    void TearDown() override { set_num_threads(before_); }

    // Returns numbers in [-1, 1), with gaps of one element between rows or columns.
    static std::vector<T> matrix(std::int64_t rows, std::int64_t columns, unsigned seed) {
        std::vector<T> values(static_cast<std::size_t>((rows + 1) * (columns + 1)));
        for (T& value : values) {
            seed = 1664525 * seed + 1013904223;
            value = static_cast<T>(static_cast<float>(seed >> 8) / 0x1p23f - 1.0f);
        }
        return values;
    }
    static ConstView view(const std::vector<T>& values, std::int64_t rows, std::int64_t columns,
                          bool by_rows) {
        ConstView v;
        v.data = values.data(), v.dtype = dtype_of<T>, v.ndim = 2;
        v.shape[0] = rows, v.shape[1] = columns;
        v.stride[0] = by_rows ? columns + 1 : 1, v.stride[1] = by_rows ? 1 : rows + 1;
        return v;
    }
    // Returns 0.5 + a b.
    static std::vector<T> product(const ConstView& a, const ConstView& b) {
        std::vector<T> c(static_cast<std::size_t>(a.shape[0] * b.shape[1]), T(0.5f));
        View v;
        v.data = c.data(), v.dtype = a.dtype, v.ndim = 2;
        v.shape[0] = a.shape[0], v.shape[1] = b.shape[1];
        v.stride[0] = b.shape[1], v.stride[1] = 1;
        Cpu cpu;
        matmul(cpu, a, b, v, {.accumulate = true});
        return c;
    }

  private:
    int before_ = num_threads();
};

using SharedTypes = testing::Types<float, double, BFloat16>;
TYPED_TEST_SUITE(SharedOperands, SharedTypes);

TYPED_TEST(SharedOperands, GiveTheBitsOfOneThread) {
    for (const Sizes& s : kSizes) {
        const auto a = this->matrix(s.m, s.k, 1), b = this->matrix(s.k, s.n, 2);
        for (const bool a_by_rows : {true, false}) {
            for (const bool b_by_rows : {true, false}) {
                const ConstView left = this->view(a, s.m, s.k, a_by_rows);
                const ConstView right = this->view(b, s.k, s.n, b_by_rows);
                set_num_threads(1);
                const auto one = this->product(left, right);
                for (const int threads : {2, 5}) {
                    set_num_threads(threads);
                    const auto many = this->product(left, right);
                    for (std::size_t i = 0; i < one.size(); ++i)
                        ASSERT_EQ(static_cast<double>(many[i]), static_cast<double>(one[i]))
                            << s.m << "x" << s.n << "x" << s.k << " at " << i << ", threads "
                            << threads << ", by rows " << a_by_rows << b_by_rows;
                }
            }
        }
    }
}

TEST(SharedOperandsGrid, SharesAOrBOrBothForTheSizesAbove) {
    int only_a = 0, only_b = 0, both = 0;
    for (const Sizes& s : kSizes) {
        for (const int threads : {2, 5}) {
            const Grid grid = grid_of(s, threads);
            only_a += grid.shares_a && !grid.shares_b;
            only_b += grid.shares_b && !grid.shares_a;
            both += grid.shares_a && grid.shares_b;
        }
        const Grid one = grid_of(s, 1);
        EXPECT_FALSE(one.shares_a || one.shares_b) << s.m << "x" << s.n << "x" << s.k;
    }
    EXPECT_GT(only_a, 0);
    EXPECT_GT(only_b, 0);
    EXPECT_GT(both, 0);
}

}  // namespace
}  // namespace axle::kernels
