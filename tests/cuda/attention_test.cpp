// Tests attention with masks and dropout, in sizes that cuDNN supports on a real GPU. Also tests
// the kernels that run before and after cuDNN's graphs. On the simulated GPU, Axle uses its own
// kernels.
#include <cmath>
#include <limits>
#include <span>

#include "core/autograd/autograd.h"
#include "core/cuda/graph.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/random.h"
#include "kernels/cuda/attention/cudnn_scores.h"
#include "tests/close.h"
#include "tests/cuda/gpu.h"

namespace axle::tests {
namespace {

#if AXLE_SIMULATED_GPU
constexpr std::int64_t kLength = 40;  // the simulated GPU is slow
#else
constexpr std::int64_t kLength = 136;
#endif

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor back(const Tensor& x) { return to(x.detach(), Device::cpu()); }

// Returns out and the gradients of q, k and v, on q's device.
std::vector<Tensor> attend(const std::vector<Tensor>& qkv, const Tensor& dout,
                           const AttentionOptions& options) {
    std::vector<Tensor> x;
    for (const Tensor& t : qkv) x.push_back(t.detach().set_requires_grad());
    const Tensor out = scaled_dot_product_attention(x[0], x[1], x[2], options);
    sum(to(out * dout, f32)).backward();
    return {out.detach(), x[0].grad(), x[1].grad(), x[2].grad()};
}

std::vector<Tensor> in(DType dtype, Device device, std::vector<Tensor> x) {
    for (Tensor& t : x) t = to(to(t, dtype), device);
    return x;
}

class GpuAttention : public GpuTest {};

// The bounds of rounding errors, relative to the largest value. Let u be the unit roundoff. Weights
// and outputs are rounded to the dtype, which adds 2u to the output. The gradients of q and k are
// sums of products with dscores, which are rounded. The terms of dscores (dweights - rowsum)
// cancel, and `rowsum` contains the error of the rounded output. The worst case adds about 8u.
double output_bound(DType dtype) { return dtype == f16 ? 0x1p-10 : 0x1p-7; }
double gradient_bound(DType dtype) { return 4 * output_bound(dtype); }

// With the scattered masks, query 3 attends to no key. If attention is causal and a mask hides the
// first keys, the first queries also attend to no key.
TEST_F(GpuAttention, MatchesTheCpuWithBooleanAndFloatMasks) {
    manual_seed(1);
    const std::int64_t batch = 2, heads = 2, length = kLength, depth = 32;
    const Shape shape = {batch, heads, length, depth};
    const std::vector<Tensor> qkv = {randn(shape), randn(shape), randn(shape)};
    const Tensor dout = randn(shape);
    Tensor padding = ones({batch, 1, 1, length}, {boolean});
    padding.select(0, 1).narrow(-1, 0, 9).fill_(0);
    Tensor scattered = gt(rand({length, length}), 0.3);
    scattered.select(0, 3).fill_(0);
    const Tensor bias = randn({1, heads, length, length});
    const Tensor hidden = where(scattered, zeros({}), full({}, -kInfinity));
    for (const DType dtype : {bf16, f16})
        for (const Tensor& mask : {padding, scattered, bias, to(bias, dtype), hidden})
            for (const bool causal : {false, true}) {
                SCOPED_TRACE(str(dtype, ", mask ", mask.dtype(), " ", mask.shape(), causal));
                const std::vector<Tensor> x = in(dtype, Device::cpu(), qkv);
                const Tensor dy = to(dout, dtype);
                const auto gpu = attend(in(dtype, kGpu, x), to(dy, kGpu),
                                        {.mask = to(mask, kGpu), .causal = causal});
                const Tensor exact = is_floating(mask.dtype()) ? to(mask, f64) : mask;
                const auto cpu = attend(in(f64, Device::cpu(), x), to(dy, f64),
                                        {.mask = exact, .causal = causal});
                expect_close(back(gpu[0]), cpu[0], 2 * output_bound(dtype));
                for (std::size_t i = 1; i < gpu.size(); ++i)
                    expect_close(back(gpu[i]), cpu[i], gradient_bound(dtype));
            }
}

// If v is the identity matrix, the output is the matrix of attention weights.
TEST_F(GpuAttention, DropsTheSameWeightsInForwardAndBackward) {
    constexpr double kDropped = 0.25;
    const std::int64_t batch = 2, heads = 2, queries = 160, keys = 64;
    const Shape shape = {batch, heads, queries, keys}, of_k = {batch, heads, keys, keys};
    manual_seed(2);
    const Tensor eye = triu(tril(ones({keys, keys})));
    const std::vector<Tensor> qkv =
        in(bf16, kGpu, {randn(shape), randn(of_k), contiguous(expand(eye, of_k))});
    const Tensor dout = to(to(randn(shape), bf16), kGpu);
    const GeneratorState before = generator_state();
    const auto first = attend(qkv, dout, {.dropout_p = kDropped});
    set_generator_state(before);
    const auto again = attend(qkv, dout, {.dropout_p = kDropped});
    expect_same_bits(back(again[0]), back(first[0]));
    const auto other = attend(qkv, dout, {.dropout_p = kDropped});
    EXPECT_NE(difference(back(other[0]), back(first[0]), 1e-3), "");

    const Tensor weights = to(back(first[0]), f64);
    const Tensor whole = to(back(attend(qkv, dout, {})[0]), f64);
    const Tensor kept = to(ne(weights, 0.0), f64);
    const double share = mean(kept).item();
    // The tolerance is 5 standard deviations.
    const auto numel = static_cast<double>(kept.numel());
    EXPECT_NEAR(share, 1 - kDropped, 5 * std::sqrt(kDropped * (1 - kDropped) / numel));
    expect_close(weights, kept * whole / (1 - kDropped), 1e-2);
    // The gradient of v is dv = weights^T dout.
    const Tensor dv = matmul(transpose(weights, -2, -1), to(back(dout), f64));
    expect_close(back(first[3]), dv, 2e-2);
    // The gradient of q is dq = dscores k / 8, where dscores = whole * (dweights - rowsum(dweights
    // * whole)) and dweights = kept * dout / (1 - p). `whole` contains the weights before
    // dropout.
    const Tensor dweights = kept * to(back(dout), f64) / (1 - kDropped);
    const Tensor dscores = whole * (dweights - sum(dweights * whole, {-1}, true));
    const Tensor dq = matmul(dscores, to(back(qkv[1]), f64)) / std::sqrt(double{keys});
    expect_close(back(first[1]), dq, gradient_bound(bf16));
}

TEST_F(GpuAttention, DropsTheSameWeightsInReplaysAsInEagerCalls) {
    const Shape shape = {1, 4, 128, 64};
    manual_seed(4);
    const std::vector<Tensor> qkv = in(bf16, kGpu, {randn(shape), randn(shape), randn(shape)});
    const Tensor dout = to(to(randn(shape), bf16), kGpu);
    const auto step = [&] { return attend(qkv, dout, {.dropout_p = 0.5, .causal = true}); };
    step();
    Graph graph;
    std::vector<Tensor> captured;
    {
        GraphCapture capture(graph);
        captured = step();
        capture.end();
    }
    manual_seed(5);
    std::vector<Tensor> expected;
    for (int i = 0; i < 2; ++i) expected.push_back(back(step()[0]));
    EXPECT_NE(difference(expected[0], expected[1], 1e-3), "");
    manual_seed(5);
    for (const Tensor& out : expected) {
        graph.replay();
        expect_same_bits(back(captured[0]), out);
    }
}

// --- kernels around cuDNN's graphs

// Returns the bias of a mask that is broadcast to [2, 2, 3, 5], on the CPU in f32. Sets `own` to
// the shape of the bias in memory.
Tensor bias_of(const Tensor& mask, DType operands, Shape* own = nullptr) {
    const Tensor there = expand(to(mask, kGpu), {2, 2, 3, 5});
    View bias = kernels::cudnn::bias_like(there.view(), operands, nullptr);
    Tensor memory =
        zeros({kernels::cudnn::bias_bytes(bias) / size_of(bias.dtype)}, {bias.dtype, kGpu});
    bias.data = memory.view().data;
    kernels::cudnn::write_bias(cuda_context(kGpu.index), there.view(), bias);
    if (own != nullptr) *own = Shape(std::span<const std::int64_t>(bias.shape, 4));
    Tensor all = empty({2, 2, 3, 5});
    const Tensor from = to(back(memory), f32);
    for (std::int64_t i = 0; i < all.numel(); ++i) {
        const std::int64_t at[] = {i / 30, i / 15 % 2, i / 5 % 3, i % 5};
        std::int64_t place = 0;
        for (int d = 0; d < 4; ++d) place += (bias.shape[d] == 1 ? 0 : at[d]) * bias.stride[d];
        all.data<float>()[i] = from.data<float>()[place];
    }
    return all;
}

class CudnnAttention : public GpuTest {};

TEST_F(CudnnAttention, ConvertsMasksToFiniteBiases) {
    manual_seed(6);
    Tensor floats = randn({2, 1, 3, 5});
    floats.data<float>()[0] = -std::numeric_limits<float>::infinity();
    floats.data<float>()[1] = -1e38F;
    for (const DType operands : {f16, bf16})
        for (const DType dtype : {f64, f32, f16, bf16}) {
            SCOPED_TRACE(str(operands, ", mask ", dtype));
            Shape own;
            const Tensor mask = to(floats, dtype);
            const Tensor bias = bias_of(mask, operands, &own);
            EXPECT_EQ(own, (Shape{2, 1, 3, 5}));
            const float hidden = bias.data<float>()[0], lowest = bias.data<float>()[1];
            EXPECT_LE(hidden, -65504);
            EXPECT_LE(lowest, -65504);
            if (dtype != f16) {
                EXPECT_LT(hidden, 1.5F * lowest);
            }
            EXPECT_GT(hidden, -0x1p120f);  // adding scores or scaling does not overflow
            const Tensor expected = expand(to(mask, f32), {2, 2, 3, 5});
            expect_same_bits(contiguous(narrow(bias, -1, 2, 3)),
                             contiguous(narrow(expected, -1, 2, 3)));
            // Both heads have the same bias.
            expect_same_bits(contiguous(bias.select(1, 1)), contiguous(bias.select(1, 0)));
        }
    for (const DType operands : {f16, bf16})
        for (const Shape& shape : {Shape{2, 2, 3, 5}, Shape{2, 1, 1, 5}, Shape{3, 1}, Shape{5}}) {
            SCOPED_TRACE(str(operands, " ", shape));
            const Tensor mask = gt(rand(shape), 0.5);
            const Tensor bias = bias_of(mask, operands);
            const Tensor all = contiguous(expand(mask, {2, 2, 3, 5}));
            for (std::int64_t i = 0; i < all.numel(); ++i) {
                const float x = bias.data<float>()[i];
                EXPECT_TRUE(all.data<bool>()[i] ? x == 0 : x <= -65504 && x > -0x1p120f) << x;
            }
        }
}

TEST_F(CudnnAttention, ClearsOutputsOfQueriesWithoutKeys) {
    Tensor mask = ones({2, 1, 3, 70}, {boolean});
    mask.select(0, 0).select(1, 1).fill_(0);  // row 1 of the first batch element attends to no key
    // Row 2 of the second batch element attends only to its last key.
    mask.select(0, 1).select(1, 2).narrow(-1, 0, 69).fill_(0);
    // Row 0 of the second batch element does not attend to the first two keys.
    mask.select(0, 1).select(1, 0).narrow(-1, 0, 2).fill_(0);
    const Tensor there = expand(to(mask, kGpu), {2, 2, 3, 70});
    for (const bool causal : {false, true}) {
        Tensor out = ones({2, 2, 3, 40}, {bf16, kGpu}), lse = ones({2, 2, 3}, {f32, kGpu});
        kernels::cudnn::clear_rows_without_keys(cuda_context(kGpu.index), there.view(), causal,
                                                out.view(), lse.view());
        const Tensor sums = to(sum(to(back(out), f32), {-1}), f32), logs = back(lse);
        for (std::int64_t row = 0; row < 12; ++row) {
            const std::int64_t b = row / 6, i = row % 3;
            const bool blank = b == 0 ? i == 1 : causal && i != 1;
            EXPECT_EQ(sums.data<float>()[row], blank ? 0 : 40) << row << " " << causal;
            EXPECT_EQ(logs.data<float>()[row], blank ? -kInfinity : 1) << row << " " << causal;
        }
    }
}

TEST_F(CudnnAttention, ReplacesNegativeInfiniteLogSumExpWithALargeNumber) {
    const Tensor lse = to(full({2, 3}, -kInfinity), kGpu);
    Tensor finite = empty({2, 3}, {f32, kGpu});
    kernels::cudnn::replace_infinity(cuda_context(kGpu.index), lse.view(), finite.view());
    const Tensor large = back(finite);
    EXPECT_GT(large.data<float>()[5], 1e20F);
    EXPECT_LT(large.data<float>()[5], 0x1p120f);
}

TEST_F(CudnnAttention, WritesTheDropoutStateOnTheGpu) {
    const Tensor base = to(tensor(std::vector<std::int64_t>{7, 1000}, {2}), kGpu);
    Tensor state = zeros({4}, {i64, kGpu});
    auto* const to_state = state.view().as<std::int64_t>();
    kernels::cudnn::write_random_state(cuda_context(kGpu.index), {.seed = 3, .offset = 5}, to_state,
                                       to_state + 1);
    kernels::cudnn::write_random_state(
        cuda_context(kGpu.index), {.seed = 3, .offset = 5, .base = base.view().as<std::uint64_t>()},
        to_state + 2, to_state + 3);
    expect_same_bits(back(state), tensor(std::vector<std::int64_t>{3, 20, 7, 4020}, {4}));
}

}  // namespace
}  // namespace axle::tests
