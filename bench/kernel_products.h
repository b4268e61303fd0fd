// The rows of bench_kernels whose speed is limited by arithmetic: matrix products, attention,
// convolutions.
#pragma once

#include <cstdint>
#include <string>

#include "bench/kernel_operands.h"
#include "bench/row.h"
#include "core/launch.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/matmul.h"

namespace axle::bench {

struct Product {
    std::int64_t m, n, k;
    bool cold;
    DType dtype = f32;
};

// Adds a matrix product. `layout` has one letter per operand: N means row-major, and T means stored
// transposed. The forward pass of PyTorch's Linear is NT, the gradient of its input NN, and the
// gradient of its weight TN.
inline void add_product(const Product& p, const std::string& layout) {
    const bool a_transposed = layout[0] == 'T', b_transposed = layout[1] == 'T';
    const auto prepare = [=] {
        Tensor a = operand(a_transposed ? Shape{p.k, p.m} : Shape{p.m, p.k}, p.dtype);
        Tensor b = operand(b_transposed ? Shape{p.n, p.k} : Shape{p.k, p.n}, p.dtype);
        Tensor c = empty({p.m, p.n}, {p.dtype});
        if (a_transposed) a = a.t();
        if (b_transposed) b = b.t();
        return [=]() mutable { kernels::matmul(cpu_context(), a.view(), b.view(), c.view()); };
    };
    const double elements = product({p.m, p.k}) + product({p.k, p.n}) + product({p.m, p.n});
    add_row({.name = "matmul/" + std::string(name_of(p.dtype)) + "/" + size_text({p.m, p.n, p.k}) +
                     "/" + layout,
             .prepare = prepare,
             .flops = 2 * product({p.m, p.n, p.k}),
             .bytes = elements * static_cast<double>(size_of(p.dtype)),
             .cold = p.cold});
}

inline void add_products() {
    const Product products[] = {
        {64, 64, 64, false},     {512, 512, 512, false},  {1024, 1024, 1024, false},
        {768, 384, 128, false},  {768, 128, 128, false},  {768, 512, 128, false},
        {768, 128, 512, false},  {768, 65, 128, false},   {256, 2304, 768, true},
        {256, 768, 768, true},   {256, 3072, 768, true},  {256, 768, 3072, true},
        {3072, 768, 256, true},  {256, 50257, 768, true}, {50257, 768, 256, true},
        {256, 768, 50257, true},
    };
    for (const Product& p : products)
        for (const char* layout : {"NN", "NT", "TN"}) add_product(p, layout);
    for (const char* layout : {"NN", "NT", "TN"}) {
        add_product({1024, 1024, 1024, false, bf16}, layout);
        add_product({256, 3072, 768, true, bf16}, layout);
        add_product({256, 50257, 768, true, bf16}, layout);
    }
}

// Adds causal attention. Only the operations for the lower half of the scores are counted.
inline void add_attention(std::int64_t batch, std::int64_t heads, std::int64_t time,
                          std::int64_t width) {
    const Shape shape = {batch, heads, time, width};
    const double product_flops = product({batch, heads, time, time, width});
    const kernels::AttentionParams params = {.scale = 0.125, .causal = true};
    const auto name = size_text({batch, heads, time, width});
    add_row({.name = "attention/" + name,
             .prepare = [=]() -> Call {
                 const Tensor q = operand(shape), k = operand(shape), v = operand(shape);
                 Tensor out = empty(shape), lse = empty({batch, heads, time});
                 return [=]() mutable {
                     kernels::attention(cpu_context(), q.view(), k.view(), v.view(), {}, params,
                                        out.view(), lse.view());
                 };
             },
             .flops = 2 * product_flops,
             .cold = false});
    add_row({.name = "attention_backward/" + name,
             .prepare = [=]() -> Call {
                 const Tensor q = operand(shape), k = operand(shape), v = operand(shape);
                 const Tensor dout = operand(shape);
                 Tensor out = empty(shape), lse = empty({batch, heads, time});
                 kernels::attention(cpu_context(), q.view(), k.view(), v.view(), {}, params,
                                    out.view(), lse.view());
                 Tensor dq = empty(shape), dk = empty(shape), dv = empty(shape);
                 return [=]() mutable {
                     kernels::attention_backward(cpu_context(), dout.view(), q.view(), k.view(),
                                                 v.view(), {}, out.view(), lse.view(), params,
                                                 dq.view(), dk.view(), dv.view());
                 };
             },
             .flops = 5 * product_flops,
             .cold = false});
}

// The sizes of a convolution layer on images of `size` x `size`. add_convolution() adds its forward
// pass and the gradients of its input and weight. Multiplications with the zeros of the padding are
// counted.
struct Convolution {
    std::int64_t images, in, out, size, kernel, stride, padding;
};

inline void add_convolution(const Convolution& c) {
    const std::int64_t out_size = (c.size + 2 * c.padding - c.kernel) / c.stride + 1;
    const auto add = [&](const char* direction, auto call) {
        add_row({.name = std::string("conv2d") + direction + "/" +
                         size_text({c.images, c.in, c.size, c.size}) + "/" +
                         size_text({c.out, c.kernel, c.kernel}) + "/" + std::to_string(c.stride),
                 .prepare = [=]() -> Call {
                     Tensor x = operand({c.images, c.in, c.size, c.size});
                     Tensor w = operand({c.out, c.in, c.kernel, c.kernel});
                     Tensor y = operand({c.images, c.out, out_size, out_size});
                     const kernels::ConvAxis axis = {c.stride, c.padding, 1};
                     return [=]() mutable {
                         call(cpu_context(), x.view(), w.view(), y.view(),
                              kernels::ConvGeometry{axis, axis, 1});
                     };
                 },
                 .flops = 2 * product({c.images, c.in, c.out, c.kernel, c.kernel}) *
                          product({out_size, out_size}),
                 .cold = false});
    };
    add("", [](kernels::Cpu& on, View x, View w, View y, const kernels::ConvGeometry& geometry) {
        kernels::conv2d(on, x, w, {}, geometry, y);
    });
    add("_input",
        [](kernels::Cpu& on, View x, View w, View y, const kernels::ConvGeometry& geometry) {
            kernels::conv2d_transposed(on, y, w, {}, geometry, x);
        });
    add("_weight",
        [](kernels::Cpu& on, View x, View w, View y, const kernels::ConvGeometry& geometry) {
            kernels::conv2d_weight_gradient(on, y, x, geometry, w);
        });
}

// Adds the convolutions of ResNet-18 on CIFAR images, and of LeNet.
inline void add_convolutions() {
    const Convolution layers[] = {
        {32, 3, 64, 32, 3, 1, 1},   {32, 64, 64, 32, 3, 1, 1},   {32, 64, 128, 32, 3, 2, 1},
        {32, 64, 128, 32, 1, 2, 0}, {32, 128, 128, 16, 3, 1, 1}, {32, 256, 256, 8, 3, 1, 1},
        {32, 512, 512, 4, 3, 1, 1}, {64, 1, 6, 28, 5, 1, 2},     {64, 6, 16, 14, 5, 1, 0},
    };
    for (const Convolution& c : layers) add_convolution(c);
}

}  // namespace axle::bench
