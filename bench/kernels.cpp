// The raw kernels, alone: no tensor, no graph, memory allocated beforehand.
//
// Shapes are those of two models. char-GPT is 4 layers of width 128 on 12 x 64 tokens; its working
// set stays in the caches, so its rows are hot. GPT-2 is 12 layers of width 768 on 4 x 64 tokens;
// its weights alone are half a gigabyte, so its rows are cold.
#include <cstdint>
#include <initializer_list>
#include <string>

#include "bench/row.h"
#include "core/launch.h"
#include "core/ops.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/copy.h"
#include "kernels/ops/index.h"
#include "kernels/ops/loss.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/pointwise.h"
#include "kernels/ops/random.h"
#include "kernels/ops/reduce.h"
#include "kernels/ops/softmax.h"

namespace axle::bench {
namespace {

using kernels::Cpu;

// Operands are tensors here for the sake of their memory.
Tensor operand(const Shape& shape, DType dtype = f32) { return randn(shape, {dtype}); }
Tensor indices(std::int64_t below, const Shape& shape) { return randint(0, below, shape); }

double product(std::initializer_list<std::int64_t> sizes) {
    double n = 1;
    for (const std::int64_t size : sizes) n *= static_cast<double>(size);
    return n;
}
std::string size_text(std::initializer_list<std::int64_t> sizes) {
    std::string text;
    for (const std::int64_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
    return text;
}

struct Product {
    std::int64_t m, n, k;
    bool cold;
    DType dtype = f32;
};

// N: as it is used, T: stored transposed. Forward of PyTorch's Linear is NT, the gradient of its
// input NN, and of its weight TN.
void add_product(const Product& p, const std::string& layout) {
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

void add_products() {
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

// name/rows x width, with `streams` tensors of that size moved. make(x, y, z) returns the call.
template <class Make>
void add_streams(const std::string& name, std::int64_t rows, std::int64_t width, int streams,
                 Make make, bool cold = true) {
    const auto prepare = [=]() -> Call {
        const Tensor x = operand({rows, width}), y = operand({rows, width});
        return make(x, y, streams > 2 ? operand({rows, width}) : x);
    };
    add_row({.name = name + "/" + size_text({rows, width}),
             .prepare = prepare,
             .bytes = 4.0 * streams * product({rows, width}),
             .cold = cold});
}

template <class F>
void add_unary(const std::string& name, F f, std::int64_t rows, std::int64_t width, bool cold) {
    add_streams(
        name, rows, width, 2,
        [=](const Tensor& x, Tensor y, const Tensor&) {
            return [=]() mutable { kernels::unary(cpu_context(), f, x.view(), y.view()); };
        },
        cold);
    add_streams(
        name + "_slope", rows, width, 3,
        [=](const Tensor& x, Tensor y, const Tensor& z) {
            return [=]() mutable {
                kernels::unary_slope(cpu_context(), f, x.view(), z.view(), y.view());
            };
        },
        cold);
}

void add_elementwise() {
    const auto add = [](const Tensor& x, Tensor y, const Tensor& z) {
        return [=]() mutable {
            kernels::binary(cpu_context(), kernels::formula::Add{}, x.view(), z.view(), y.view());
        };
    };
    add_streams("add", 4096, 3072, 3, add);
    add_streams("add", 768, 128, 3, add, false);
    add_row({.name = "add_bias/4096x3072",
             .prepare = []() -> Call {
                 const Tensor x = operand({4096, 3072}), b = operand({3072}).expand({4096, 3072});
                 Tensor y = empty_like(x);
                 return [=]() mutable {
                     kernels::binary(cpu_context(), kernels::formula::Add{}, x.view(), b.view(),
                                     y.view());
                 };
             },
             .bytes = 8 * product({4096, 3072})});
    add_unary("relu", kernels::formula::Relu{}, 4096, 3072, true);
    add_unary("gelu", kernels::formula::Gelu{}, 4096, 3072, true);
    add_unary("gelu", kernels::formula::Gelu{}, 768, 512, false);
    add_unary("gelu_tanh", kernels::formula::GeluTanh{}, 4096, 3072, true);
    add_unary("gelu_tanh", kernels::formula::GeluTanh{}, 256, 3072, false);
    add_streams("dropout", 4096, 3072, 2, [](const Tensor& x, Tensor y, const Tensor&) {
        return [=]() mutable { kernels::dropout(cpu_context(), {}, 0.1, x.view(), y.view()); };
    });
}

// y = x where x's dtype, order of dimensions, or nothing differs.
void add_copy(const std::string& name, DType from, DType to, bool transposed) {
    add_row({.name = "copy/" + name,
             .prepare = [=]() -> Call {
                 Tensor x = operand({4096, 4096}, from);
                 if (transposed) x = x.t();
                 Tensor y = empty({4096, 4096}, {to});
                 return [=]() mutable { kernels::copy(cpu_context(), x.view(), y.view()); };
             },
             .bytes = product({4096, 4096}) * static_cast<double>(size_of(from) + size_of(to))});
}

void add_copies() {
    add_copy("4096x4096", f32, f32, false);
    add_copy("4096x4096/transposed", f32, f32, true);
    add_copy("4096x4096/to_bf16", f32, bf16, false);
    add_copy("4096x4096/from_bf16", bf16, f32, false);
    // [B, T, 3, H, D] to heads first: what a strided attention would otherwise pay.
    add_row({.name = "copy/heads/4x1024x12x64",
             .prepare = []() -> Call {
                 const Tensor x = operand({4, 1024, 12, 64}).transpose(1, 2);
                 Tensor y = empty({4, 12, 1024, 64});
                 return [=]() mutable { kernels::copy(cpu_context(), x.view(), y.view()); };
             },
             .bytes = 8 * product({4, 1024, 12, 64})});
}

void add_reductions() {
    const auto reduce = [](const char* name, const Shape& to) {
        add_row({.name = std::string("sum/") + name + "/4096x3072",
                 .prepare = [=]() -> Call {
                     const Tensor x = operand({4096, 3072});
                     Tensor y = empty(to);
                     return [=]() mutable { kernels::sum(cpu_context(), x.view(), y.view()); };
                 },
                 .bytes = 4 * product({4096, 3072})});
    };
    reduce("all", {1, 1}), reduce("rows", {4096, 1}), reduce("columns", {1, 3072});
    add_row({.name = "column_sum/4096x3072",
             .prepare = []() -> Call {
                 const Tensor x = operand({4096, 3072});
                 Tensor y = empty({3072});
                 return [=]() mutable { kernels::column_sum(cpu_context(), x.view(), y.view()); };
             },
             .bytes = 4 * product({4096, 3072})});
}

void add_norms(std::int64_t rows, std::int64_t width, bool cold) {
    const auto softmax = [](const Tensor& x, Tensor y, const Tensor&) {
        return [=]() mutable { kernels::softmax(cpu_context(), x.view(), y.view()); };
    };
    const auto softmax_backward = [](const Tensor& x, Tensor y, const Tensor& z) {
        return [=]() mutable {
            kernels::softmax_backward(cpu_context(), x.view(), z.view(), y.view());
        };
    };
    add_streams("softmax", rows, width, 2, softmax, cold);
    add_streams("softmax_backward", rows, width, 3, softmax_backward, cold);

    const auto norm = [=](const Tensor& x, Tensor y, const Tensor&) {
        const Tensor weight = operand({width}), bias = operand({width});
        Tensor mean = empty({rows}), rstd = empty({rows});
        return [=]() mutable {
            kernels::layer_norm(cpu_context(), x.view(), weight.view(), bias.view(), 1e-5, y.view(),
                                mean.view(), rstd.view());
        };
    };
    const auto norm_backward = [=](const Tensor& x, Tensor y, const Tensor& z) {
        const Tensor weight = operand({width}), mean = zeros({rows}), rstd = ones({rows});
        Tensor dweight = empty({width}), dbias = empty({width});
        return [=]() mutable {
            kernels::layer_norm_backward(cpu_context(), x.view(), z.view(), weight.view(),
                                         mean.view(), rstd.view(), y.view(), dweight.view(),
                                         dbias.view());
        };
    };
    add_streams("layer_norm", rows, width, 2, norm, cold);
    add_streams("layer_norm_backward", rows, width, 3, norm_backward, cold);
}

void add_cross_entropy(std::int64_t rows, std::int64_t classes, bool cold) {
    const auto bytes = 4 * product({rows, classes});
    const auto name = size_text({rows, classes});
    add_row({.name = "cross_entropy/" + name,
             .prepare = [=]() -> Call {
                 const Tensor logits = operand({rows, classes}), targets = indices(classes, {rows});
                 Tensor loss = empty({rows}), lse = empty({rows});
                 return [=]() mutable {
                     kernels::cross_entropy(cpu_context(), logits.view(), targets.view(), {},
                                            loss.view(), lse.view());
                 };
             },
             .bytes = bytes,
             .cold = cold});
    add_row({.name = "cross_entropy_backward/" + name,
             .prepare = [=]() -> Call {
                 const Tensor logits = operand({rows, classes}), targets = indices(classes, {rows});
                 const Tensor lse = full({rows}, 11.0), dloss = ones({rows});
                 Tensor dlogits = empty_like(logits);
                 return [=]() mutable {
                     kernels::cross_entropy_backward(cpu_context(), logits.view(), targets.view(),
                                                     lse.view(), dloss.view(), {}, dlogits.view());
                 };
             },
             .bytes = 2 * bytes,
             .cold = cold});
}

// Causal; half of the scores are never needed, and are not counted.
void add_attention(std::int64_t batch, std::int64_t heads, std::int64_t time, std::int64_t width) {
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

void add_embedding() {
    constexpr std::int64_t kRows = 50257, kIds = 8192, kWidth = 768;
    add_row({.name = "embedding/8192x768",
             .prepare = []() -> Call {
                 const Tensor weight = operand({kRows, kWidth});
                 const Tensor ids = indices(kRows, {kIds, 1}).expand({kIds, kWidth});
                 Tensor y = empty({kIds, kWidth});
                 return [=]() mutable {
                     kernels::gather(cpu_context(), 0, weight.view(), ids.view(), y.view());
                 };
             },
             .bytes = 8 * product({kIds, kWidth})});
    // Reads the ids' rows and writes the whole table.
    add_row({.name = "embedding_backward/8192x768/50257",
             .prepare = []() -> Call {
                 const Tensor dy = operand({kIds, kWidth}), ids = indices(kRows, {kIds});
                 Tensor dweight = empty({kRows, kWidth});
                 return [=]() mutable {
                     kernels::embedding_backward(cpu_context(), dy.view(), ids.view(), -1,
                                                 dweight.view());
                 };
             },
             .bytes = 4 * product({kIds + kRows, kWidth})});
}

// A quarter of GPT-2 124M, which is far beyond any cache.
void add_optimizer() {
    constexpr std::int64_t kNumel = 32 << 20;
    add_row({.name = "adamw/32M",
             .prepare = []() -> Call {
                 Tensor p = operand({kNumel}), m = zeros({kNumel}), v = zeros({kNumel});
                 Tensor step = zeros({});
                 const Tensor g = operand({kNumel});
                 return [=]() mutable {
                     const kernels::AdamGroup group = {.lr = 1e-4,
                                                       .beta1 = 0.9,
                                                       .beta2 = 0.99,
                                                       .eps = 1e-8,
                                                       .weight_decay = 0.1,
                                                       .decoupled = true};
                     const kernels::Slot slot = {.param = p.raw_data(),
                                                 .grad = g.raw_data(),
                                                 .first = m.raw_data(),
                                                 .second = v.raw_data(),
                                                 .step = step.data<float>(),
                                                 .numel = kNumel};
                     kernels::adam(cpu_context(), {&slot, 1}, &group, nullptr);
                 };
             },
             .bytes = 28.0 * kNumel});
    add_row({.name = "gradient_norm/32M",
             .prepare = []() -> Call {
                 const Tensor g = operand({kNumel});
                 return [=] {
                     const kernels::Run run = {.data = g.raw_data(), .numel = kNumel};
                     double norm = 0;
                     kernels::norm(cpu_context(), {&run, 1}, 2, &norm);
                     benchmark::DoNotOptimize(norm);
                 };
             },
             .bytes = 4.0 * kNumel});
}

// A layer on images of `size` x `size`, in its three directions. Multiplications with the zeros of
// the padding count, as everywhere.
struct Convolution {
    std::int64_t images, in, out, size, kernel, stride, padding;
};

void add_convolution(const Convolution& c) {
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
    add("", [](Cpu& on, View x, View w, View y, const kernels::ConvGeometry& geometry) {
        kernels::conv2d(on, x, w, {}, geometry, y);
    });
    add("_input", [](Cpu& on, View x, View w, View y, const kernels::ConvGeometry& geometry) {
        kernels::conv2d_transposed(on, y, w, {}, geometry, x);
    });
    add("_weight", [](Cpu& on, View x, View w, View y, const kernels::ConvGeometry& geometry) {
        kernels::conv2d_weight_gradient(on, y, x, geometry, w);
    });
}

// ResNet-18 on images of CIFAR's size, and LeNet.
void add_convolutions() {
    const Convolution layers[] = {
        {32, 3, 64, 32, 3, 1, 1},   {32, 64, 64, 32, 3, 1, 1},   {32, 64, 128, 32, 3, 2, 1},
        {32, 64, 128, 32, 1, 2, 0}, {32, 128, 128, 16, 3, 1, 1}, {32, 256, 256, 8, 3, 1, 1},
        {32, 512, 512, 4, 3, 1, 1}, {64, 1, 6, 28, 5, 1, 2},     {64, 6, 16, 14, 5, 1, 0},
    };
    for (const Convolution& c : layers) add_convolution(c);
}

void add_rows() {
    add_products();
    add_convolutions();
    add_elementwise();
    add_copies();
    add_reductions();
    add_norms(4096, 1024, true), add_norms(4096, 768, true);
    add_norms(256, 768, false), add_norms(768, 128, false);
    add_cross_entropy(256, 50257, true), add_cross_entropy(768, 65, false);
    add_attention(12, 4, 64, 32), add_attention(4, 12, 64, 64), add_attention(1, 12, 1024, 64);
    add_embedding();
    add_optimizer();
}

}  // namespace
}  // namespace axle::bench

int main(int argc, char** argv) {
    axle::bench::add_rows();
    return axle::bench::run_rows(argc, argv);
}
