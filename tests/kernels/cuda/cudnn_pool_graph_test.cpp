// Tests that cuDNN has plans for pooling operations. Needs no GPU.
#if AXLE_CUDA

#include "kernels/cuda/pool/cudnn_pool.h"
#include "tests/kernels/cuda/described_gpu.h"

namespace axle::kernels::cudnn {
namespace {

// Returns a row-major view of shape [n, c, size, size].
ConstView planes(DType dtype, std::int64_t n, std::int64_t c, std::int64_t size) {
    ConstView x;
    x.dtype = dtype, x.ndim = 4;
    x.shape[0] = n, x.shape[1] = c, x.shape[2] = x.shape[3] = size;
    x.stride[0] = c * size * size, x.stride[1] = size * size, x.stride[2] = size, x.stride[3] = 1;
    return x;
}

struct Case {
    const char* name;
    std::int64_t size, out;
    Pool pool;
};

Pool windows(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
    const PoolAxis axis = {.kernel = kernel, .stride = stride, .padding = padding};
    return {.h = axis, .w = axis};
}
Pool inside(Pool pool) {
    pool.count_padding = false;
    return pool;
}

const Case kCases[] = {
    {"LeNet's", 28, 14, windows(2, 2, 0)},
    {"ResNet's first", 112, 56, windows(3, 2, 1)},
    {"ResNet's last", 7, 1, {.adaptive = true}},
    {"parts", 56, 7, {.adaptive = true}},
    {"overlapping", 30, 30, windows(5, 1, 2)},
    {"the elements inside", 112, 56, inside(windows(3, 2, 1))},
    {"a last window that is cut", 13, 7, inside(windows(3, 2, 0))},
};

constexpr PoolResult kForward[] = {PoolResult::maximum, PoolResult::mean};

using CudnnPoolGraph = DescribedGpu;

TEST_F(CudnnPoolGraph, PlansEveryKindOfWindow) {
    for (const DType dtype : {f32, f16, bf16})
        for (const Case& c : kCases)
            for (const PoolResult result : kForward) {
                const ConstView x = planes(dtype, 32, 64, c.size), y = planes(dtype, 32, 64, c.out);
                ASSERT_TRUE(has_pool_rules(result, c.pool, x, y)) << c.name;
                EXPECT_TRUE(workspace(pool_graph(result, c.pool, x, y), Limits()))
                    << c.name << ", " << dtype << ", result " << static_cast<int>(result);
            }
}

TEST_F(CudnnPoolGraph, PlansAveragePoolingGradientsWithAndWithoutDeterminism) {
    for (const Case& c : kCases)
        for (const bool deterministic : {false, true}) {
            Limits limits;
            limits.deterministic = deterministic;
            EXPECT_TRUE(
                workspace(pool_graph(PoolResult::mean_gradient, c.pool, planes(f32, 32, 64, c.size),
                                     planes(f32, 32, 64, c.out)),
                          limits))
                << c.name << ", deterministic: " << deterministic;
        }
}

TEST_F(CudnnPoolGraph, RejectsInconsistentShapes) {
    EXPECT_THROW(
        pool_graph(PoolResult::mean, windows(2, 2, 0), planes(f32, 2, 3, 28), planes(f32, 2, 3, 13))
            .finish(nullptr),
        UnsupportedGraph);
}

TEST(CudnnPoolRules, RejectUnsupportedDivisorsDilationsAndWindows) {
    const ConstView x = planes(f32, 2, 3, 12), y = planes(f32, 2, 3, 6), cut = planes(f32, 2, 3, 7);
    const auto suits = [&](PoolResult result, const Pool& pool, const ConstView& out) {
        return has_pool_rules(result, pool, x, out);
    };
    EXPECT_TRUE(suits(PoolResult::mean, windows(2, 2, 0), y));
    EXPECT_TRUE(suits(PoolResult::maximum, windows(2, 2, 0), y));

    Pool divided = windows(2, 2, 0), holes = windows(2, 2, 0);
    divided.divisor = 3, holes.h.dilation = 2;
    EXPECT_FALSE(suits(PoolResult::mean, divided, y));
    EXPECT_TRUE(suits(PoolResult::maximum, divided, y));
    EXPECT_FALSE(suits(PoolResult::maximum, holes, y));

    // With 12 elements and a padding of 1, the seventh window extends one element beyond the
    // padding.
    EXPECT_TRUE(suits(PoolResult::maximum, windows(3, 2, 1), cut));
    EXPECT_TRUE(suits(PoolResult::mean, inside(windows(3, 2, 1)), cut));
    EXPECT_FALSE(suits(PoolResult::mean, windows(3, 2, 1), cut));

    EXPECT_TRUE(suits(PoolResult::mean, {.adaptive = true}, y));
    EXPECT_FALSE(suits(PoolResult::mean, {.adaptive = true}, cut));
}

}  // namespace
}  // namespace axle::kernels::cudnn

#endif
