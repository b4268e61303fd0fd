// Products whose results are written without reading them into the caches first.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/half.h"
#include "kernels/ops/matmul.h"
#include "kernels/thread_pool.h"

namespace axle::kernels {
namespace {

struct Layout {
    std::int64_t m, n, k;
    std::int64_t gap = 0;     // elements between the rows of c
    std::int64_t start = 0;   // elements before c
    bool transposed = false;  // whether a is stored by columns
};

// The first rows can be streamed; the last are too small, too deep, or not aligned.
constexpr Layout kLayouts[] = {
    {1030, 528, 40},   {520, 1040, 33, 16}, {2049, 272, 17, 32, 0, true}, {64, 64, 40},
    {1030, 512, 1100}, {1030, 525, 20},     {1030, 528, 20, 3},           {1030, 528, 20, 0, 1}};

template <class T>
class StreamedProduct : public testing::Test {
  protected:
    void TearDown() override { set_num_threads(before_); }

    static std::vector<T> numbers(std::int64_t n, unsigned seed) {
        std::vector<T> values(static_cast<std::size_t>(n));
        for (T& value : values) {
            seed = 1664525 * seed + 1013904223;
            value = static_cast<T>(static_cast<float>(seed >> 8) / 0x1p23f - 1.0f);
        }
        return values;
    }

    // Returns the memory of c and the elements around it, which are 0.5.
    static std::vector<float> product(const Layout& l, bool bypasses_caches) {
        const std::vector<T> a = numbers(l.m * l.k, 1), b = numbers(l.k * l.n, 2);
        const std::int64_t step = l.n + l.gap, aligned = 16;
        std::vector<float> memory(static_cast<std::size_t>(l.m * step + 2 * aligned), 0.5f);
        float* begin = memory.data();
        while (reinterpret_cast<std::uintptr_t>(begin) % 64 != 0) ++begin;
        const auto view = [](auto v, auto* data, DType dtype, std::int64_t rows,
                             std::int64_t columns, std::int64_t row_step, std::int64_t step_) {
            v.data = data, v.dtype = dtype, v.ndim = 2;
            v.shape[0] = rows, v.shape[1] = columns;
            v.stride[0] = row_step, v.stride[1] = step_;
            return v;
        };
        Cpu cpu;
        matmul(cpu,
               view(ConstView(), a.data(), dtype_of<T>, l.m, l.k, l.transposed ? 1 : l.k,
                    l.transposed ? l.m : 1),
               view(ConstView(), b.data(), dtype_of<T>, l.k, l.n, l.n, 1),
               view(View(), begin + l.start, DType::f32, l.m, l.n, step, 1),
               {.bypasses_caches = bypasses_caches});
        return {begin, begin + l.m * step};
    }

  private:
    int before_ = num_threads();
};

using StreamedTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(StreamedProduct, StreamedTypes);

TYPED_TEST(StreamedProduct, GivesTheSameBitsAndWritesOnlyItsElements) {
    for (const Layout& l : kLayouts) {
        for (const int threads : {1, 3}) {
            set_num_threads(threads);
            const auto cached = this->product(l, false), streamed = this->product(l, true);
            ASSERT_EQ(streamed.size(), cached.size());
            for (std::size_t i = 0; i < cached.size(); ++i)
                ASSERT_EQ(streamed[i], cached[i])
                    << l.m << "x" << l.n << "x" << l.k << " at " << i << ", threads " << threads;
        }
    }
}

}  // namespace
}  // namespace axle::kernels
