// The rows of bench_kernels whose speed is limited by memory bandwidth.
#pragma once

#include <cstdint>
#include <string>

#include "bench/kernel_operands.h"
#include "bench/row.h"
#include "core/launch.h"
#include "kernels/ops/copy.h"
#include "kernels/ops/index.h"
#include "kernels/ops/loss.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/pointwise.h"
#include "kernels/ops/random.h"
#include "kernels/ops/reduce.h"
#include "kernels/ops/softmax.h"

namespace axle::bench {

// Adds a row "name/<rows>x<width>", which reads or writes `streams` tensors [rows, width]. make(x,
// y, z) returns the call.
template <class Make>
inline void add_streams(const std::string& name, std::int64_t rows, std::int64_t width, int streams,
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
inline void add_unary(const std::string& name, F f, std::int64_t rows, std::int64_t width,
                      bool cold) {
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

inline void add_elementwise() {
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

// Adds a copy y = x, where x can have another dtype or another order of dimensions.
inline void add_copy(const std::string& name, DType from, DType to, bool transposed) {
    add_row({.name = "copy/" + name,
             .prepare = [=]() -> Call {
                 Tensor x = operand({4096, 4096}, from);
                 if (transposed) x = x.t();
                 Tensor y = empty({4096, 4096}, {to});
                 return [=]() mutable { kernels::copy(cpu_context(), x.view(), y.view()); };
             },
             .bytes = product({4096, 4096}) * static_cast<double>(size_of(from) + size_of(to))});
}

inline void add_copies() {
    add_copy("4096x4096", f32, f32, false);
    add_copy("4096x4096/transposed", f32, f32, true);
    add_copy("4096x4096/to_bf16", f32, bf16, false);
    add_copy("4096x4096/from_bf16", bf16, f32, false);
    // Copies [B, T, H, D] to [B, H, T, D]. Attention on strided operands does not need this copy.
    add_row({.name = "copy/heads/4x1024x12x64",
             .prepare = []() -> Call {
                 const Tensor x = operand({4, 1024, 12, 64}).transpose(1, 2);
                 Tensor y = empty({4, 12, 1024, 64});
                 return [=]() mutable { kernels::copy(cpu_context(), x.view(), y.view()); };
             },
             .bytes = 8 * product({4, 1024, 12, 64})});
}

inline void add_reductions() {
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

inline void add_norms(std::int64_t rows, std::int64_t width, bool cold) {
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

inline void add_cross_entropy(std::int64_t rows, std::int64_t classes, bool cold) {
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

inline void add_embedding() {
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
    // Reads the gradients of the embeddings and writes the gradient of the table.
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

// Adds AdamW and the gradient norm on 2^25 elements, a quarter of the number of parameters of GPT-2
// 124M. Their data does not fit into a cache.
inline void add_optimizer() {
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

}  // namespace axle::bench
