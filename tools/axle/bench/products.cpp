// The kernels of `axle bench` whose speed is limited by arithmetic.
#include <algorithm>
#include <cmath>

#include "core/ops.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/matmul.h"
#include "tools/axle/bench/kernel.h"

namespace axle::bench {
namespace {

using kernels::Cpu;

const std::vector<DType> kFloats = {f32, f64, bf16, f16};

// Prepares c [M, N] = a [M, K] b [K, N]. The layout has one letter for a and one letter for b: N is
// row-major, T is stored transposed. The forward pass of PyTorch's Linear is NT, the gradient of
// its input NN, and the gradient of its weight TN.
Problem matmul(const Case& c) {
    const std::int64_t m = c.shape[0], n = c.shape[1], k = c.shape[2];
    const auto operand = [&](char letter, std::int64_t rows, std::int64_t width) {
        if (letter == 'T') return randn({width, rows}, {c.dtype}).t();
        return randn({rows, width}, {c.dtype});
    };
    const Tensor a = operand(c.layout[0], m, k), b = operand(c.layout[1], k, n);
    Tensor out = empty({m, n}, {c.dtype});
    return {.inputs = {a, b},
            .outputs = {out},
            .call = [=](Cpu& on) mutable { kernels::matmul(on, a.view(), b.view(), out.view()); },
            .operations = 2 * count({m, n, k})};
}

// Prepares causal attention. Only the operations for the lower half of the scores are counted.
Problem attention(const Case& c, bool backward) {
    const Shape shape = {c.shape[0], c.shape[1], c.shape[2], c.shape[3]};
    const double scale = 1 / std::sqrt(static_cast<double>(c.shape[3]));
    const kernels::AttentionParams params = {.scale = scale, .causal = true};
    const double product = count({shape[0], shape[1], shape[2], shape[2], shape[3]});
    const auto input = [&] { return randn(shape, {c.dtype}); };
    const auto output = [&] { return empty(shape, {c.dtype}); };
    const Tensor q = input(), k = input(), v = input();
    Tensor out = output();
    Tensor lse = empty({shape[0], shape[1], shape[2]}, {c.dtype == f64 ? f64 : f32});
    const auto forward = [=](Cpu& on) mutable {
        kernels::attention(on, q.view(), k.view(), v.view(), {}, params, out.view(), lse.view());
    };
    Problem problem = {.inputs = {q, k, v},
                       .outputs = {out, lse},
                       .integers = {1},
                       .numbers = {scale},
                       .call = forward,
                       .operations = 2 * product};
    if (!backward) return problem;
    Cpu on;
    problem.call(on);
    const Tensor dout = input();
    Tensor dq = output(), dk = output(), dv = output();
    problem.inputs = {dout, q, k, v, out, lse};
    problem.outputs = {dq, dk, dv};
    problem.operations = 5 * product;
    problem.call = [=](Cpu& cpu) mutable {
        kernels::attention_backward(cpu, dout.view(), q.view(), k.view(), v.view(), {}, out.view(),
                                    lse.view(), params, dq.view(), dk.view(), dv.view());
    };
    return problem;
}

enum class Pass { forward, input, weight };

// Prepares a pass of a convolution. Multiplications with the zeros of the padding are counted.
Problem conv2d(const Case& c, Pass pass) {
    const std::int64_t images = c.shape[0], in = c.shape[1], h = c.shape[2], w = c.shape[3];
    const std::int64_t out = c.shape[4], size = c.shape[5], stride = c.shape[6], pad = c.shape[7];
    const std::int64_t rows = (h + 2 * pad - size) / stride + 1;
    const std::int64_t columns = (w + 2 * pad - size) / stride + 1;
    Tensor x = randn({images, in, h, w}, {c.dtype});
    Tensor weight = randn({out, in, size, size}, {c.dtype});
    Tensor y = randn({images, out, rows, columns}, {c.dtype});
    const kernels::ConvAxis axis = {stride, pad, 1};
    const kernels::ConvGeometry geometry = {axis, axis, 1};
    Problem problem = {.integers = {stride, pad},
                       .operations = 2 * count({images, in, out, size, size, rows, columns})};
    if (pass == Pass::forward) {
        problem.inputs = {x, weight}, problem.outputs = {y};
        problem.call = [=](Cpu& on) mutable {
            kernels::conv2d(on, x.view(), weight.view(), {}, geometry, y.view());
        };
    } else if (pass == Pass::input) {
        problem.inputs = {y, weight}, problem.outputs = {x};
        problem.call = [=](Cpu& on) mutable {
            kernels::conv2d_transposed(on, y.view(), weight.view(), {}, geometry, x.view());
        };
    } else {
        problem.inputs = {y, x}, problem.outputs = {weight};
        problem.call = [=](Cpu& on) mutable {
            kernels::conv2d_weight_gradient(on, y.view(), x.view(), geometry, weight.view());
        };
    }
    return problem;
}

}  // namespace

// Most shapes are taken from two models: GPT-2 with 4 x 64 tokens, and a GPT with 4 layers of width
// 128 and 12 x 64 tokens. Convolutions are taken from ResNet-18 on CIFAR images, and from LeNet.
std::vector<Kernel> products() {
    const auto conv = [](const char* name, const char* operands, Pass pass) {
        return Kernel{.name = name,
                      .shape = "NxCxHxWxOxKxSxP",
                      .operands = operands,
                      .limit = Limit::arithmetic,
                      .dtypes = kFloats,
                      .layouts = {"N"},
                      .shapes = {{32, 64, 32, 32, 64, 3, 1, 1},
                                 {32, 256, 8, 8, 256, 3, 1, 1},
                                 {64, 6, 14, 14, 16, 5, 1, 0}},
                      .prepare = [=](const Case& c) { return conv2d(c, pass); },
                      .check = [](const Sizes& s) -> std::string {
                          const bool fits = s[5] <= std::min(s[2], s[3]) + 2 * s[7];
                          return fits ? "" : "the kernel K is larger than the padded image";
                      }};
    };
    const std::vector<Sizes> attentions = {{12, 4, 64, 32}, {4, 12, 64, 64}, {1, 12, 1024, 64}};
    return {
        {.name = "matmul",
         .shape = "MxNxK",
         .operands = "a [M, K], b [K, N] -> c [M, N]",
         .limit = Limit::arithmetic,
         .dtypes = kFloats,
         .layouts = {"NN", "NT", "TN", "TT"},
         .shapes = {{64, 64, 64}, {1024, 1024, 1024}, {768, 512, 128}, {256, 3072, 768}},
         .prepare = matmul},
        {.name = "attention",
         .shape = "BxHxTxD",
         .operands =
             "q, k, v [B, H, T, D] -> out [B, H, T, D], lse [B, H, T]; integers: causal = 1; "
             "numbers: scale",
         .limit = Limit::arithmetic,
         .dtypes = kFloats,
         .layouts = {"N"},
         .shapes = attentions,
         .prepare = [](const Case& c) { return attention(c, false); }},
        {.name = "attention_backward",
         .shape = "BxHxTxD",
         .operands = "dout, q, k, v, out [B, H, T, D], lse [B, H, T] -> dq, dk, dv [B, H, T, D]; "
                     "integers: causal = 1; numbers: scale",
         .limit = Limit::arithmetic,
         .dtypes = kFloats,
         .layouts = {"N"},
         .shapes = attentions,
         .prepare = [](const Case& c) { return attention(c, true); }},
        conv("conv2d", "x [N, C, H, W], w [O, C, K, K] -> y [N, O, R, Q]; integers: S, P",
             Pass::forward),
        conv("conv2d_input", "dy [N, O, R, Q], w [O, C, K, K] -> dx [N, C, H, W]; integers: S, P",
             Pass::input),
        conv("conv2d_weight", "dy [N, O, R, Q], x [N, C, H, W] -> dw [O, C, K, K]; integers: S, P",
             Pass::weight),
    };
}

}  // namespace axle::bench
