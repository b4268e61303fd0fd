// The rows of bench_gpu_kernels whose speed is limited by memory bandwidth.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "bench/gpu_row.h"
#include "kernels/ops/copy.h"
#include "kernels/ops/index.h"
#include "kernels/ops/loss.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/pointwise.h"
#include "kernels/ops/random.h"
#include "kernels/ops/softmax.h"

namespace axle::bench {

// Measures an op on tensors [rows, width]. make(x, y, z) returns a call that reads or writes
// `streams` of these tensors.
template <class Make>
void run_streams(const GpuTable& table, const char* op, DType dtype, std::int64_t rows,
                 std::int64_t width, int streams, Make make) {
    table.run({.op = op,
               .dtype = dtype,
               .shape = size_text({rows, width}),
               .prepare = [=]() -> Call {
                   const Tensor x = operand({rows, width}, dtype), y = room({rows, width}, dtype);
                   return make(x, y, streams > 2 ? operand({rows, width}, dtype) : x);
               },
               .bytes = streams * width_of(dtype) * product({rows, width})});
}

inline void run_elementwise(const GpuTable& table, DType dtype) {
    constexpr std::int64_t kRows = 65536, kWidth = 3072;
    const auto add = [](const Tensor& x, Tensor y, const Tensor& z) -> Call {
        return [=]() mutable {
            kernels::binary(gpu(), kernels::formula::Add{}, x.view(), z.view(), y.view());
        };
    };
    const auto gelu = [](const Tensor& x, Tensor y, const Tensor&) -> Call {
        return [=]() mutable {
            kernels::unary(gpu(), kernels::formula::GeluTanh{}, x.view(), y.view());
        };
    };
    const auto gelu_slope = [](const Tensor& x, Tensor y, const Tensor& z) -> Call {
        return [=]() mutable {
            kernels::unary_slope(gpu(), kernels::formula::GeluTanh{}, x.view(), z.view(), y.view());
        };
    };
    const auto dropout = [](const Tensor& x, Tensor y, const Tensor&) -> Call {
        return [=]() mutable { kernels::dropout(gpu(), {}, 0.1, x.view(), y.view()); };
    };
    const auto transposed = [](const Tensor& x, Tensor y, const Tensor&) -> Call {
        const Tensor turned = x.view({kWidth, kRows}).t();
        return [=]() mutable { kernels::copy(gpu(), turned.view(), y.view()); };
    };
    run_streams(table, "add", dtype, kRows, kWidth, 3, add);
    run_streams(table, "gelu_tanh", dtype, kRows, kWidth, 2, gelu);
    run_streams(table, "gelu_tanh_backward", dtype, kRows, kWidth, 3, gelu_slope);
    run_streams(table, "dropout", dtype, kRows, kWidth, 2, dropout);
    run_streams(table, "copy transposed", dtype, kRows, kWidth, 2, transposed);
}

inline void run_norms(const GpuTable& table, DType dtype, std::int64_t rows, std::int64_t width) {
    const auto softmax = [](const Tensor& x, Tensor y, const Tensor&) -> Call {
        return [=]() mutable { kernels::softmax(gpu(), x.view(), y.view()); };
    };
    const auto softmax_backward = [](const Tensor& x, Tensor y, const Tensor& z) -> Call {
        return [=]() mutable { kernels::softmax_backward(gpu(), x.view(), z.view(), y.view()); };
    };
    const auto layer_norm = [=](const Tensor& x, Tensor y, const Tensor&) -> Call {
        const Tensor weight = operand({width}), bias = operand({width});
        Tensor mean = room({rows}), rstd = room({rows});
        return [=]() mutable {
            kernels::layer_norm(gpu(), x.view(), weight.view(), bias.view(), 1e-5, y.view(),
                                mean.view(), rstd.view());
        };
    };
    const auto layer_norm_backward = [=](const Tensor& x, Tensor y, const Tensor& z) -> Call {
        const Tensor weight = operand({width}), mean = operand({rows}), rstd = operand({rows});
        Tensor dweight = room({width}), dbias = room({width});
        return [=]() mutable {
            kernels::layer_norm_backward(gpu(), x.view(), z.view(), weight.view(), mean.view(),
                                         rstd.view(), y.view(), dweight.view(), dbias.view());
        };
    };
    const auto rms_norm = [=](const Tensor& x, Tensor y, const Tensor&) -> Call {
        const Tensor weight = operand({width});
        Tensor rstd = room({rows});
        return [=]() mutable {
            kernels::rms_norm(gpu(), x.view(), weight.view(), 1e-5, y.view(), rstd.view());
        };
    };
    const auto rms_norm_backward = [=](const Tensor& x, Tensor y, const Tensor& z) -> Call {
        const Tensor weight = operand({width}), rstd = operand({rows});
        Tensor dweight = room({width});
        return [=]() mutable {
            kernels::rms_norm_backward(gpu(), x.view(), z.view(), weight.view(), rstd.view(),
                                       y.view(), dweight.view());
        };
    };
    run_streams(table, "softmax", dtype, rows, width, 2, softmax);
    run_streams(table, "softmax_backward", dtype, rows, width, 3, softmax_backward);
    run_streams(table, "layer_norm", dtype, rows, width, 2, layer_norm);
    run_streams(table, "layer_norm_backward", dtype, rows, width, 3, layer_norm_backward);
    run_streams(table, "rms_norm", dtype, rows, width, 2, rms_norm);
    run_streams(table, "rms_norm_backward", dtype, rows, width, 3, rms_norm_backward);
}

inline void run_cross_entropy(const GpuTable& table, DType dtype) {
    constexpr std::int64_t kRows = 8192, kClasses = 50304;
    run_streams(table, "cross_entropy", dtype, kRows, kClasses, 1,
                [](const Tensor& logits, const Tensor&, const Tensor&) -> Call {
                    const Tensor targets = indices(kClasses, {kRows});
                    Tensor loss = room({kRows}), lse = room({kRows});
                    return [=]() mutable {
                        kernels::cross_entropy(gpu(), logits.view(), targets.view(), {},
                                               loss.view(), lse.view());
                    };
                });
    run_streams(table, "cross_entropy_backward", dtype, kRows, kClasses, 2,
                [](const Tensor& logits, Tensor dlogits, const Tensor&) -> Call {
                    const Tensor targets = indices(kClasses, {kRows});
                    const Tensor lse = full({kRows}, 11.0, {f32, kGpu});
                    const Tensor dloss = ones({kRows}, {f32, kGpu});
                    return [=]() mutable {
                        kernels::cross_entropy_backward(gpu(), logits.view(), targets.view(),
                                                        lse.view(), dloss.view(), {},
                                                        dlogits.view());
                    };
                });
}

inline void run_embedding(const GpuTable& table) {
    constexpr std::int64_t kRows = 50304, kIds = 65536, kWidth = 768;
    table.run({.op = "embedding",
               .dtype = f32,
               .shape = size_text({kIds, kWidth}),
               .prepare = []() -> Call {
                   const Tensor weight = operand({kRows, kWidth});
                   const Tensor ids = indices(kRows, {kIds, 1}).expand({kIds, kWidth});
                   Tensor y = room({kIds, kWidth});
                   return [=]() mutable {
                       kernels::gather(gpu(), 0, weight.view(), ids.view(), y.view());
                   };
               },
               .bytes = 8 * product({kIds, kWidth})});
    table.run({.op = "embedding_backward",
               .dtype = f32,
               .shape = size_text({kIds, kWidth}) + " into " + std::to_string(kRows),
               .prepare = []() -> Call {
                   const Tensor dy = operand({kIds, kWidth}), ids = indices(kRows, {kIds});
                   Tensor dweight = room({kRows, kWidth});
                   return [=]() mutable {
                       kernels::embedding_backward(gpu(), dy.view(), ids.view(), -1,
                                                   dweight.view());
                   };
               },
               .bytes = 4 * product({kIds + kRows, kWidth})});
}

// Measures AdamW and the gradient norm on one array with as many elements as GPT-2 (124M) with a
// vocabulary of 50304 tokens has parameters.
inline void run_optimizer(const GpuTable& table) {
    constexpr std::int64_t kNumel = 124'475'904;
    table.run({.op = "adamw",
               .dtype = f32,
               .shape = std::to_string(kNumel),
               .prepare = []() -> Call {
                   // The values are lr, beta1, beta2, eps, weight_decay and two flags.
                   const kernels::AdamGroup group = {1e-4, 0.9, 0.95, 1e-8, 0.1, true, false};
                   Tensor bytes = Tensor::empty({static_cast<std::int64_t>(sizeof group)}, {u8});
                   std::copy_n(reinterpret_cast<const std::uint8_t*>(&group), sizeof group,
                               bytes.data<std::uint8_t>());
                   const Tensor groups = to(bytes, kGpu), p = operand({kNumel}),
                                g = operand({kNumel}), m = zeros({kNumel}, {f32, kGpu}),
                                v = zeros({kNumel}, {f32, kGpu}), step = zeros({1}, {f32, kGpu});
                   return [=] {
                       const kernels::Slot slot = {.param = p.raw_data(),
                                                   .grad = g.raw_data(),
                                                   .state = {m.raw_data(), v.raw_data()},
                                                   .step = static_cast<float*>(step.raw_data()),
                                                   .numel = kNumel};
                       kernels::adam(gpu(), {&slot, 1},
                                     static_cast<const kernels::AdamGroup*>(groups.raw_data()),
                                     nullptr);
                   };
               },
               .bytes = 28.0 * kNumel});
    table.run({.op = "gradient_norm",
               .dtype = f32,
               .shape = std::to_string(kNumel),
               .prepare = []() -> Call {
                   const Tensor g = operand({kNumel}), norm = zeros({1}, {f64, kGpu});
                   return [=] {
                       const kernels::Run run = {.data = g.raw_data(), .numel = kNumel};
                       kernels::norm(gpu(), {&run, 1}, 2, static_cast<double*>(norm.raw_data()));
                   };
               },
               .bytes = 4.0 * kNumel});
}

}  // namespace axle::bench
