// Tests batch_norm, group_norm and layer_norm: running statistics, large means, dtypes, threads,
// errors, and agreement with the definition.
#include <functional>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "kernels/thread_pool.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;

// Returns shapes for each code path: large planes, planes of a few elements, and channel groups
// larger than a cache.
const std::vector<Shape>& shapes() {
    static const std::vector<Shape> all = {
        {6, 40, 9, 9}, {33, 70, 3}, {2, 3, 70001}, {70001, 3}, {40, 20, 5, 5}};
    return all;
}

// Returns the mean and the unbiased variance of each channel in f64.
std::pair<Tensor, Tensor> statistics(const Tensor& x) {
    const Tensor rows = x.detach().to(f64).transpose(0, 1).reshape({x.size(1), -1});
    return {mean(rows, {1}), var(rows, {1})};
}

TEST(BatchNorm, UpdatesRunningStatistics) {
    const Tensor x = tensor({1.0, 10, 3, 30}, {2, 2});
    const Tensor running_mean = zeros({2}), running_var = ones({2});
    batch_norm(x, running_mean, running_var, {}, {}, true, 0.25);
    expect_same_bits(running_mean, tensor({0.5, 5}, {2}));
    expect_same_bits(running_var, tensor({1.25, 50.75}, {2}));
    batch_norm(x, running_mean, running_var, {}, {}, true, 1);
    expect_same_bits(running_mean, tensor({2.0, 20}, {2}));
    expect_same_bits(running_var, tensor({2.0, 200}, {2}));
}

TEST(BatchNorm, IncrementsVersionOfRunningStatistics) {
    const Tensor running_mean = zeros({2}), running_var = ones({2});
    const auto before = running_mean.version();
    batch_norm(randn({4, 2}), running_mean, running_var, {}, {}, true);
    EXPECT_EQ(running_mean.version(), before + 1);
    EXPECT_EQ(running_var.version(), before + 1);
    batch_norm(randn({4, 2}), running_mean, running_var);
    EXPECT_EQ(running_mean.version(), before + 1);
}

TEST(BatchNorm, AcceptsMissingRunningMeanOrVarianceInTraining) {
    const Tensor x = randn({4, 2}), running_mean = zeros({2}), running_var = ones({2});
    const Tensor y = batch_norm(x, {}, {}, {}, {}, true);
    expect_same_bits(batch_norm(x, running_mean, {}, {}, {}, true, 1), y);
    expect_same_bits(batch_norm(x, {}, running_var, {}, {}, true, 1), y);
    expect_close(running_mean, statistics(x).first);
    expect_close(running_var, statistics(x).second);
}

TEST(BatchNorm, UpdatesStridedAndBf16RunningStatistics) {
    const Tensor x = randn({64, 2});
    const Tensor pairs = zeros({2, 2});
    const Tensor running_mean = pairs.select(1, 0), running_var = ones({2}, {bf16});
    batch_norm(x, running_mean, running_var, {}, {}, true, 1);
    expect_close(running_mean, statistics(x).first);
    expect_same_bits(pairs.select(1, 1).contiguous(), zeros({2}));
    expect_close(running_var, statistics(x).second, 5e-3);
}

TEST(BatchNorm, KeepsRunningStatisticsForEmptyBatch) {
    const Tensor running_mean = zeros({2}), running_var = ones({2});
    EXPECT_EQ(batch_norm(zeros({0, 2, 3}), running_mean, running_var, {}, {}, true).shape(),
              Shape({0, 2, 3}));
    expect_same_bits(running_mean, zeros({2}));
    expect_same_bits(running_var, ones({2}));
}

TEST(BatchNorm, ComputesVarianceOfLargeValuesAccurately) {
    manual_seed(5);
    for (const Shape& shape : shapes()) {
        SCOPED_TRACE(str(shape));
        const Tensor x = randn(shape) + 10000, channels = zeros({shape[1]});
        const Tensor running_mean = clone(channels), running_var = clone(channels);
        const Tensor y = batch_norm(x, running_mean, running_var, {}, {}, true, 1);
        const auto [mean, variance] = statistics(x);
        expect_close(running_var, variance, 1e-6);
        expect_close(running_mean, mean, 1e-7);
        // An f32 mean near 10000 has an error of 1e-7 * 10000 = 1e-3 standard deviations.
        expect_close(y, batch_norm(x.to(f64), {}, {}, {}, {}, true), 1e-3);
    }
}

// Returns the output of norm(x, weight, bias), and the gradients of x, weight and bias.
std::vector<Tensor> forward_and_backward(
    const std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>& norm,
    const Shape& shape, DType dtype) {
    manual_seed(3);
    const DType parameters = dtype == f64 ? f64 : f32;
    Tensor x = (randn(shape) * 2 + 1).to(dtype), weight = rand({shape[1]}).to(parameters),
           bias = rand({shape[1]}).to(parameters);
    for (Tensor* t : {&x, &weight, &bias}) *t = t->detach().set_requires_grad();
    const Tensor y = norm(x, weight, bias);
    y.backward(randn(shape).to(y.dtype()));
    return {y.detach(), x.grad(), weight.grad(), bias.grad()};
}

TEST(BatchNorm, GivesSameResultForSeveralNumbersOfThreads) {
    const int before = kernels::num_threads();
    for (const Shape& shape : shapes()) {
        SCOPED_TRACE(str(shape));
        std::vector<std::vector<Tensor>> runs;
        for (const int threads : {1, 3, 8}) {
            kernels::set_num_threads(threads);
            const Tensor running_mean = zeros({shape[1]}), running_var = ones({shape[1]});
            runs.push_back(forward_and_backward(
                [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                    return batch_norm(x, running_mean, running_var, w, b, true);
                },
                shape, f32));
            runs.back().push_back(running_mean), runs.back().push_back(running_var);
        }
        for (std::size_t i = 0; i < runs[0].size(); ++i) {
            expect_same_bits(runs[1][i], runs[0][i]);
            expect_same_bits(runs[2][i], runs[0][i]);
        }
    }
    kernels::set_num_threads(before);
}

TEST(BatchNorm, MatchesF64ResultsInF32AndBf16) {
    for (const bool training : {true, false})
        for (const Shape& shape : shapes()) {
            SCOPED_TRACE(str(shape, training ? " training" : " evaluation"));
            const auto norm = [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                const TensorOptions options = {w.dtype()};
                const Tensor mean = ones({shape[1]}, options), var = full({shape[1]}, 3, options);
                return batch_norm(x, mean, var, w, b, training);
            };
            const auto exact = forward_and_backward(norm, shape, f64);
            const auto single = forward_and_backward(norm, shape, f32);
            const auto half = forward_and_backward(norm, shape, bf16);
            for (std::size_t i = 0; i < exact.size(); ++i) {
                SCOPED_TRACE(i);
                expect_close(single[i], exact[i], 2e-5);
                expect_close(half[i], exact[i], 3e-2);
            }
        }
}

TEST(BatchNorm, MatchesDefinition) {
    for (const Shape& shape : shapes()) {
        SCOPED_TRACE(str(shape));
        const auto fused =
            forward_and_backward([](const Tensor& x, const Tensor& w,
                                    const Tensor& b) { return batch_norm(x, {}, {}, w, b, true); },
                                 shape, f64);
        const auto defined = forward_and_backward(
            [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                const Shape rows = {shape[0], shape[1], -1}, channels = {shape[1], 1};
                const Tensor flat = x.reshape(rows);
                const Tensor centered = flat - mean(flat, {0, 2}, true);
                const Tensor h = centered * rsqrt(mean(centered * centered, {0, 2}, true) + 1e-5);
                return (h * w.view(channels) + b.view(channels)).reshape(shape);
            },
            shape, f64);
        for (std::size_t i = 0; i < fused.size(); ++i) expect_close(fused[i], defined[i], 1e-10);
    }
}

TEST(BatchNorm, UsesStatisticsOfForwardPassInBackward) {
    Tensor x = randn({4, 2});
    x.set_requires_grad();
    const Tensor running_mean = zeros({2}), running_var = full({2}, 3.0);
    const Tensor y = batch_norm(x, running_mean, running_var, {}, {}, false, 0.1, 1);
    batch_norm(x.detach(), running_mean, running_var, {}, {}, true);
    sum(y).backward();
    expect_close(x.grad(), full({4, 2}, 0.5));
}

TEST(BatchNorm, KeepsInputDTypeUnderAutocastUnlikeGroupNorm) {
    const AutocastGuard autocast(bf16);
    const Tensor weight = ones({4}), half = randn({3, 4, 2}).to(bf16);
    EXPECT_EQ(batch_norm(half, {}, {}, weight, weight, true).dtype(), bf16);
    EXPECT_EQ(batch_norm(half.to(f32), {}, {}, weight, weight, true).dtype(), f32);
    EXPECT_EQ(group_norm(half, 2, weight, weight).dtype(), f32);
}

TEST(BatchNorm, RejectsOneValuePerChannelInTraining) {
    const Tensor x = ones({1, 3, 1}), running = ones({3});
    expect_error<ShapeError>({"batch_norm: expected more than 1 value per channel", "[1, 3, 1]"},
                             [&] { batch_norm(x, running, running, {}, {}, true); });
    EXPECT_EQ(batch_norm(x, running, running).shape(), Shape({1, 3, 1}));
    EXPECT_EQ(batch_norm(ones({1, 3, 2}), {}, {}, {}, {}, true).shape(), Shape({1, 3, 2}));
}

TEST(BatchNorm, RejectsInvalidArguments) {
    const Tensor x = ones({4, 3}), right = ones({3}), wrong = ones({4});
    expect_error<ShapeError>({"batch_norm: x must be [N, C, ...]", "[3]"},
                             [&] { batch_norm(right, right, right); });
    expect_error<ShapeError>({"batch_norm: running_var must be [3]", "[4]", "[4, 3]"},
                             [&] { batch_norm(x, right, wrong); });
    expect_error<ShapeError>({"batch_norm: weight must be [3]", "[4]"},
                             [&] { batch_norm(x, right, right, wrong); });
    expect_error<DTypeError>({"batch_norm: bias", "float64"},
                             [&] { batch_norm(x, right, right, right, right.to(f64)); });
    expect_error<UsageError>({"batch_norm: running_mean and running_var are needed"},
                             [&] { batch_norm(x, right, {}); });
    Tensor trained = ones({3});
    trained.set_requires_grad();
    expect_error<UsageError>({"batch_norm: a tensor that requires a gradient", "[3]"},
                             [&] { batch_norm(x, trained, right, {}, {}, true); });
}

TEST(GroupNorm, EqualsLayerNormWithOneGroup) {
    const Tensor x = randn({3, 4, 5, 6}), flat = x.reshape({3, -1});
    expect_close(group_norm(x, 1), layer_norm(flat).reshape(x.shape()));
}

TEST(GroupNorm, EqualsBatchNormOfOneSampleWithOneChannelPerGroup) {
    const Tensor x = randn({1, 4, 5000});
    expect_close(group_norm(x, 4), batch_norm(x, {}, {}, {}, {}, true));
}

TEST(GroupNorm, MatchesDefinition) {
    for (const Shape& shape : {Shape{5, 6}, {3, 6, 35}, {2, 6, 4100}, {3, 600, 1}, {2, 6, 2048}}) {
        SCOPED_TRACE(str(shape));
        const auto fused = [](const Tensor& x, const Tensor& w, const Tensor& b) {
            return group_norm(x, 2, w, b);
        };
        const auto defined = [&](const Tensor& x, const Tensor& w, const Tensor& b) {
            const Tensor flat = x.reshape({shape[0], 2, -1});
            const Tensor centered = flat - mean(flat, {2}, true);
            const Tensor h = centered * rsqrt(mean(centered * centered, {2}, true) + 1e-5);
            const Shape channels = {shape[1], 1};
            return (h.reshape({shape[0], shape[1], -1}) * w.view(channels) + b.view(channels))
                .reshape(shape);
        };
        const auto expected = forward_and_backward(defined, shape, f64);
        const auto exact = forward_and_backward(fused, shape, f64),
                   single = forward_and_backward(fused, shape, f32),
                   half = forward_and_backward(fused, shape, bf16);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            SCOPED_TRACE(i);
            expect_close(exact[i], expected[i], 1e-11);
            expect_close(single[i], expected[i], 2e-5);
            expect_close(half[i], expected[i], 3e-2);
        }
    }
}

TEST(GroupNorm, RejectsMismatchedArguments) {
    expect_error<ShapeError>(
        {"group_norm: groups must be positive and divide the channels", "4", "[2, 6]"}, [] {
            group_norm(ones({2, 6}), 4);
        });
    expect_error<ShapeError>({"group_norm: groups must be positive and divide the channels", "0"},
                             [] {
                                 group_norm(ones({2, 6}), 0);
                             });
    expect_error<ShapeError>({"group_norm: weight must be [6]", "[2]"}, [] {
        group_norm(ones({2, 6}), 2, ones({2}));
    });
}

// The distance between f32 values near 10000 is 1e-3, so the rounding error of the mean must not
// contribute to the variance.
TEST(LayerNorm, ComputesVarianceOfLargeValuesAccurately) {
    manual_seed(5);
    for (const std::int64_t width : {3, 67, 768, 5000}) {
        SCOPED_TRACE(width);
        const Tensor x = randn({16, width}) * 0.01 + 10000;
        const Tensor y = layer_norm(x, {}, {}, 1e-12).to(f64);
        expect_close(var(y, {-1}), var(layer_norm(x.to(f64), {}, {}, 1e-12), {-1}), 1e-5);
    }
}

}  // namespace
}  // namespace axle
