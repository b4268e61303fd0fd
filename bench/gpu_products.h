// The rows of bench_gpu_kernels whose speed is limited by arithmetic: matrix products, attention,
// convolutions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "bench/gpu_row.h"
#include "core/system/numerics.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/matmul.h"

namespace axle::bench {

// Returns a row for a product of matrices [m, k] and [k, n]. `layout` has one letter per matrix: N
// means row-major, and T means stored transposed.
inline GpuRow product_row(const char* op, std::int64_t m, std::int64_t n, std::int64_t k,
                          DType dtype, std::string_view layout) {
    const bool a_transposed = layout[0] == 'T', b_transposed = layout[1] == 'T';
    const auto prepare = [=]() -> Call {
        Tensor a = operand(a_transposed ? Shape{k, m} : Shape{m, k}, dtype);
        Tensor b = operand(b_transposed ? Shape{n, k} : Shape{k, n}, dtype);
        Tensor c = room({m, n}, dtype);
        if (a_transposed) a = a.t();
        if (b_transposed) b = b.t();
        return [=]() mutable { kernels::matmul(gpu(), a.view(), b.view(), c.view()); };
    };
    return {.op = str(op, " ", layout),
            .dtype = dtype,
            .shape = size_text({m, n, k}),
            .prepare = prepare,
            .bytes = width_of(dtype) * (product({m, k}) + product({k, n}) + product({m, n})),
            .flops = 2 * product({m, n, k})};
}

// Measures the products of GPT-2's Linear layers: forward pass, input gradient and weight gradient.
// Also measures products of the size of its output layer, square products in bf16, f16, f32 and
// TF32, and a product fused with bias and GELU.
inline void run_products(const GpuTable& table) {
    constexpr std::int64_t kTokens = 65536, kWidth = 768;
    const auto layer = [&](std::int64_t in, std::int64_t out) {
        table.run(product_row("matmul", kTokens, out, in, bf16, "NN"));
        table.run(product_row("matmul", kTokens, in, out, bf16, "NT"));
        table.run(product_row("matmul", in, out, kTokens, bf16, "TN"));
    };
    layer(kWidth, 3 * kWidth), layer(kWidth, kWidth);
    layer(kWidth, 4 * kWidth), layer(4 * kWidth, kWidth);
    for (const char* layout : {"NN", "NT", "TN"})
        table.run(product_row("matmul", 8192, 50304, kWidth, bf16, layout));
    for (const std::int64_t n : {1024, 4096}) table.run(product_row("matmul", n, n, n, bf16, "NT"));
    for (const std::int64_t n : {1024, 8192}) {
        table.run(product_row("matmul", n, n, n, f16, "NT"));
        table.run(product_row("matmul", n, n, n, f32, "NT"));
        set_float32_matmul_precision(MatmulPrecision::high);
        table.run(product_row("matmul tf32", n, n, n, f32, "NT"));
        set_float32_matmul_precision(MatmulPrecision::highest);
    }
    GpuRow fused = product_row("matmul bias gelu_tanh", kTokens, 4 * kWidth, kWidth, bf16, "NN");
    fused.prepare = []() -> Call {
        const Tensor a = operand({kTokens, kWidth}, bf16), b = operand({kWidth, 4 * kWidth}, bf16);
        const Tensor bias = operand({4 * kWidth}, bf16);
        Tensor c = room({kTokens, 4 * kWidth}, bf16), pre = room({kTokens, 4 * kWidth}, bf16);
        return [=]() mutable {
            kernels::matmul(
                gpu(), a.view(), b.view(), c.view(),
                {.bias = bias.view(), .activation = Activation::gelu_tanh, .pre = pre.view()});
        };
    };
    table.run(fused);
}

// Measures causal attention. Only the operations for the lower half of the scores are counted.
// Operands have the layout of a model's projection, [B, T, 3, H, D].
inline void run_attention(const GpuTable& table, DType dtype, std::int64_t batch,
                          std::int64_t heads, std::int64_t time, std::int64_t width) {
    struct Operands {
        Tensor q, k, v, out, lse;
    };
    const auto heads_first = [=](const Tensor& x) {
        return x.view({batch, time, heads, width}).transpose(1, 2);
    };
    const auto operands = [=]() -> Operands {
        const Tensor qkv = operand({batch, time, 3 * heads * width}, dtype);
        const auto part = [&](std::int64_t i) {
            return heads_first(qkv.narrow(2, i * heads * width, heads * width));
        };
        return {part(0), part(1), part(2), heads_first(room({batch, time, heads, width}, dtype)),
                room({batch, heads, time})};
    };
    const kernels::AttentionParams params = {.scale = 0.125, .causal = true};
    const auto forward = [=](Operands& o) {
        kernels::attention(gpu(), std::as_const(o.q).view(), std::as_const(o.k).view(),
                           std::as_const(o.v).view(), {}, params, o.out.view(), o.lse.view());
    };
    const double flops = product({batch, heads, time, time, width});
    const double bytes = 4 * width_of(dtype) * product({batch, heads, time, width});
    const std::string shape = size_text({batch, heads, time, width});
    table.run({.op = "attention",
               .dtype = dtype,
               .shape = shape,
               .prepare = [=]() -> Call { return [=, o = operands()]() mutable { forward(o); }; },
               .bytes = bytes,
               .flops = 2 * flops});
    table.run({.op = "attention_backward",
               .dtype = dtype,
               .shape = shape,
               .prepare = [=]() -> Call {
                   Operands o = operands();
                   forward(o);
                   const Tensor dout = heads_first(operand({batch, time, heads, width}, dtype));
                   Operands d = operands();
                   return [=]() mutable {
                       kernels::attention_backward(
                           gpu(), dout.view(), std::as_const(o.q).view(), std::as_const(o.k).view(),
                           std::as_const(o.v).view(), {}, std::as_const(o.out).view(),
                           std::as_const(o.lse).view(), params, d.q.view(), d.k.view(), d.v.view());
                   };
               },
               .bytes = 2 * bytes,
               .flops = 5 * flops});
}

// The sizes of a convolution layer on images of `size` x `size`. run_convolution() measures its
// forward pass and the gradients of its input and weight. Multiplications with the zeros of the
// padding are counted.
struct Convolution {
    std::int64_t images, in, out, size, kernel, stride;
};

inline void run_convolution(const GpuTable& table, const Convolution& c, DType dtype,
                            bool channels_last) {
    const std::int64_t padding = c.kernel / 2;
    const std::int64_t out_size = (c.size + 2 * padding - c.kernel) / c.stride + 1;
    const auto images = [=](std::int64_t n, std::int64_t channels, std::int64_t size,
                            std::int64_t width) {
        if (!channels_last) return operand({n, channels, size, width}, dtype);
        return operand({n, size, width, channels}, dtype).permute({0, 3, 1, 2});
    };
    const auto run = [&](const char* op, auto call) {
        table.run({.op = str(op, channels_last ? " nhwc" : " nchw"),
                   .dtype = dtype,
                   .shape = size_text({c.images, c.in, c.size, c.size}) + " by " +
                            size_text({c.out, c.kernel, c.kernel}) + " / " +
                            std::to_string(c.stride),
                   .prepare = [=]() -> Call {
                       const Tensor x = images(c.images, c.in, c.size, c.size);
                       const Tensor w = images(c.out, c.in, c.kernel, c.kernel);
                       const Tensor y = images(c.images, c.out, out_size, out_size);
                       const kernels::ConvAxis axis = {c.stride, padding, 1};
                       return [=]() mutable {
                           call(Tensor(x).view(), Tensor(w).view(), Tensor(y).view(),
                                kernels::ConvGeometry{axis, axis, 1});
                       };
                   },
                   .bytes = width_of(dtype) * (product({c.images, c.in, c.size, c.size}) +
                                               product({c.images, c.out, out_size, out_size})),
                   .flops = 2 * product({c.images, c.in, c.out, c.kernel, c.kernel}) *
                            product({out_size, out_size})});
    };
    run("conv2d", [](View x, View w, View y, const kernels::ConvGeometry& geometry) {
        kernels::conv2d(gpu(), x, w, {}, geometry, y);
    });
    run("conv2d_input", [](View x, View w, View y, const kernels::ConvGeometry& geometry) {
        kernels::conv2d_transposed(gpu(), y, w, {}, geometry, x);
    });
    run("conv2d_weight", [](View x, View w, View y, const kernels::ConvGeometry& geometry) {
        kernels::conv2d_weight_gradient(gpu(), y, x, geometry, w);
    });
}

inline void run_convolutions(const GpuTable& table) {
    const Convolution layers[] = {{64, 3, 64, 224, 7, 2},   {64, 64, 64, 56, 1, 1},
                                  {64, 64, 64, 56, 3, 1},   {64, 64, 256, 56, 1, 1},
                                  {64, 128, 128, 28, 3, 1}, {64, 128, 128, 56, 3, 2},
                                  {64, 256, 256, 14, 3, 1}, {64, 1024, 256, 14, 1, 1},
                                  {64, 512, 512, 7, 3, 1},  {64, 1024, 2048, 14, 1, 2}};
    for (const Convolution& c : layers) {
        run_convolution(table, c, bf16, false);
        run_convolution(table, c, bf16, true);
        run_convolution(table, c, f16, true);
    }
}

}  // namespace axle::bench
