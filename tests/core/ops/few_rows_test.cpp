// Products of a few rows and a large matrix, which read the matrix without packing it.
#include <algorithm>

#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "kernels/thread_pool.h"
#include "tests/close.h"

namespace axle {
namespace {

// A weight [N, K], whose elements are adjacent along the depth K or along N, and rows x [17, K].
struct Layer {
    Layer(bool adjacent_along_depth, DType dtype) {
        manual_seed(1);
        const std::int64_t n = 301, k = 1027;
        const double scale = 1.0 / 32;
        weight = adjacent_along_depth ? to(randn({n, k}) * scale, dtype)
                                      : to(randn({k, n}) * scale, dtype).t();
        bias = to(randn({n}), dtype);
        x = to(randn({17, k}), dtype);
    }
    Tensor rows(std::int64_t count) const { return x.narrow(0, 0, count); }

    Tensor weight, bias, x;
};

TEST(MatmulOfFewRows, EqualsTheProductInF64) {
    const NoGrad no_grad;
    for (const bool along : {true, false})
        for (const DType dtype : {f64, f32, bf16, f16}) {
            const Layer layer(along, dtype);
            const Tensor expected =
                linear(layer.x.to(f64), layer.weight.to(f64), layer.bias.to(f64), Activation::gelu);
            const double tolerance = dtype == f64   ? 1e-13
                                     : dtype == f32 ? 3e-6
                                     : dtype == f16 ? 1e-3
                                                    : 8e-3;
            for (const std::int64_t count : {1, 2, 3, 5, 8, 9, 16, 17})
                tests::expect_close(
                    linear(layer.rows(count), layer.weight, layer.bias, Activation::gelu).to(f64),
                    expected.narrow(0, 0, count), tolerance);
        }
}

TEST(MatmulOfFewRows, GivesEachRowTheBitsOfAProductOfThisRow) {
    const NoGrad no_grad;
    const auto expect_rows = [](const Layer& layer, std::int64_t count) {
        SCOPED_TRACE(str(layer.x.dtype(), ", ", count, " rows"));
        const Tensor all = linear(layer.rows(count), layer.weight, layer.bias);
        for (std::int64_t i = 0; i < count; ++i)
            tests::expect_same_bits(all.narrow(0, i, 1),
                                    linear(layer.x.narrow(0, i, 1), layer.weight, layer.bias));
    };
    expect_rows(Layer(true, f32), 8);
    expect_rows(Layer(true, f16), 7);
    expect_rows(Layer(true, bf16), 4);
    expect_rows(Layer(false, f32), 16);
    expect_rows(Layer(false, bf16), 7);
}

TEST(MatmulOfFewRows, GivesTheSameBitsForEveryNumberOfThreads) {
    const NoGrad no_grad;
    const Layer layer(true, f32);
    const int threads = kernels::num_threads();
    kernels::set_num_threads(1);
    const Tensor one = linear(layer.rows(4), layer.weight, layer.bias);
    kernels::set_num_threads(3);
    const Tensor three = linear(layer.rows(4), layer.weight, layer.bias);
    kernels::set_num_threads(threads);
    EXPECT_TRUE(equal(one, three));
}

TEST(MatmulOfFewRows, AcceptsRowsThatAreNotContiguous) {
    const Layer layer(true, f32);
    const Tensor columns = layer.rows(4).t().contiguous();  // [K, 4]
    tests::expect_close(matmul(columns.t(), layer.weight.t()),
                        matmul(layer.rows(4), layer.weight.t()), 1e-6);
}

TEST(MatmulOfFewRows, ComputesGradientsOfTheLinearLayer) {
    const Layer layer(true, f64);
    Tensor x = layer.rows(3).clone().set_requires_grad();
    Tensor weight = layer.weight.clone().set_requires_grad();
    const Tensor y = linear(x, weight, layer.bias, Activation::silu);
    sum(y * y).backward();
    Tensor x2 = layer.rows(3).clone().set_requires_grad();
    Tensor weight2 = layer.weight.clone().set_requires_grad();
    const Tensor pre = matmul(x2.unsqueeze(0).expand({2, 3, 1027}),
                              weight2.t().unsqueeze(0).expand({2, 1027, 301})) +
                       layer.bias;
    const Tensor z = silu(pre)[0];
    sum(z * z).backward();
    tests::expect_close(x.grad(), x2.grad(), 1e-12);
    tests::expect_close(weight.grad(), weight2.grad(), 1e-12);
}

}  // namespace
}  // namespace axle
