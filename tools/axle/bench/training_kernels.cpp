// The kernels of `axle bench` for pooling, rotary embedding, embedding and optimizers.
#include <algorithm>
#include <utility>

#include "core/ops.h"
#include "kernels/ops/index.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/pool.h"
#include "kernels/ops/rotary.h"
#include "tools/axle/bench/kernel.h"

namespace axle::bench {
namespace {

using kernels::Cpu;

Problem pool2d(const Case& c, bool max) {
    const std::int64_t h = c.shape[2], w = c.shape[3], size = c.shape[4], stride = c.shape[5];
    const std::int64_t rows = (h - size) / stride + 1, columns = (w - size) / stride + 1;
    const Tensor x = randn({c.shape[0], c.shape[1], h, w}, {c.dtype});
    Tensor y = empty({c.shape[0], c.shape[1], rows, columns}, {c.dtype});
    const kernels::PoolAxis axis = {.kernel = size, .stride = stride};
    const kernels::Pool pool = {.h = axis, .w = axis};
    return {.inputs = {x},
            .outputs = {y},
            .integers = {size, stride},
            .call =
                [=](Cpu& on) mutable {
                    if (max)
                        kernels::max_pool2d(on, pool, x.view(), y.view(), {});
                    else
                        kernels::avg_pool2d(on, pool, x.view(), y.view());
                },
            .operations = static_cast<double>(y.numel()) * count({size, size})};
}

Problem rotary(const Case& c) {
    const Shape shape = {c.shape[0], c.shape[1], c.shape[2], c.shape[3]};
    const Tensor x = randn(shape, {c.dtype});
    Tensor y = empty(shape, {c.dtype});
    return {.inputs = {x},
            .outputs = {y},
            .numbers = {10000},
            .call = [=](Cpu& on) mutable { kernels::rotary(on, 10000, 0, 1, x.view(), y.view()); },
            .operations = 3 * static_cast<double>(x.numel())};
}

Problem embedding(const Case& c) {
    const std::int64_t ids = c.shape[0], width = c.shape[1], rows = c.shape[2];
    const Tensor weight = randn({rows, width}, {c.dtype});
    const Tensor index = randint(0, rows, {ids, 1}).expand({ids, width});
    Tensor y = empty({ids, width}, {c.dtype});
    return {
        .inputs = {weight, index},
        .outputs = {y},
        .call =
            [=](Cpu& on) mutable { kernels::gather(on, 0, weight.view(), index.view(), y.view()); },
        .bytes = 2 * static_cast<double>(y.numel() * size_of(c.dtype)) + 8 * count({ids})};
}

Problem embedding_backward(const Case& c) {
    const std::int64_t ids = c.shape[0], width = c.shape[1], rows = c.shape[2];
    const Tensor dy = randn({ids, width}, {c.dtype}), index = randint(0, rows, {ids});
    Tensor dweight = empty({rows, width}, {c.dtype == f64 ? f64 : f32});
    return {.inputs = {dy, index},
            .outputs = {dweight},
            .call =
                [=](Cpu& on) mutable {
                    kernels::embedding_backward(on, dy.view(), index.view(), -1, dweight.view());
                },
            .operations = count({ids, width})};
}

Problem adamw(const Case& c) {
    const DType wide = c.dtype == f64 ? f64 : f32;
    const Shape shape = {c.shape[0]};
    Tensor p = randn(shape, {c.dtype}), m = zeros(shape, {wide}), v = zeros(shape, {wide});
    Tensor step = zeros({});
    const Tensor g = randn(shape, {c.dtype});
    const kernels::AdamGroup group = {.lr = 1e-4,
                                      .beta1 = 0.9,
                                      .beta2 = 0.99,
                                      .eps = 1e-8,
                                      .weight_decay = 0.1,
                                      .decoupled = true};
    return {.inputs = {p, g, m, v},
            .outputs = {p, m, v},
            .call =
                [=](Cpu& on) mutable {
                    const kernels::Slot slot = {.param = p.raw_data(),
                                                .grad = g.raw_data(),
                                                .state = {m.raw_data(), v.raw_data()},
                                                .step = step.data<float>(),
                                                .numel = p.numel(),
                                                .param_dtype = p.dtype(),
                                                .grad_dtype = g.dtype()};
                    kernels::adam(on, {&slot, 1}, &group, nullptr);
                },
            .operations = 15 * count({c.shape[0]})};
}

Problem gradient_norm(const Case& c) {
    const Tensor g = randn({c.shape[0]}, {c.dtype});
    Tensor norm = empty({1}, {f64});
    return {.inputs = {g},
            .outputs = {norm},
            .call =
                [=](Cpu& on) mutable {
                    const kernels::Run run = {
                        .data = g.raw_data(), .numel = g.numel(), .dtype = g.dtype()};
                    kernels::norm(on, {&run, 1}, 2, norm.data<double>());
                },
            .operations = 2 * count({c.shape[0]})};
}

}  // namespace

std::vector<Kernel> training_kernels() {
    const auto kernel = [](const char* name, const char* shape, const char* operands, Sizes usual,
                           std::function<Problem(const Case&)> prepare) {
        return Kernel{.name = name,
                      .shape = shape,
                      .operands = operands,
                      .limit = Limit::memory,
                      .dtypes = {f32, f64, bf16, f16},
                      .layouts = {"N"},
                      .shapes = {std::move(usual)},
                      .prepare = std::move(prepare)};
    };
    Kernel adam = kernel("adamw", "N", "p, g, m, v [N] -> p, m, v [N]", {32 << 20}, adamw);
    adam.replaceable = false;
    Kernel turned = kernel("rotary", "BxHxTxD", "x [B, H, T, D] -> y [B, H, T, D]; numbers: base",
                           {4, 12, 1024, 64}, rotary);
    turned.check = [](const Sizes& s) -> std::string { return s[3] % 2 == 0 ? "" : "D is odd"; };
    const char* const pooled = "x [N, C, H, W] -> y [N, C, R, Q]; integers: K, S";
    const auto pool = [&](const char* name, bool max) {
        Kernel pooling = kernel(name, "NxCxHxWxKxS", pooled, {32, 64, 32, 32, 2, 2},
                                [=](const Case& c) { return pool2d(c, max); });
        pooling.check = [](const Sizes& s) -> std::string {
            return s[4] <= std::min(s[2], s[3]) ? "" : "the window K is larger than the image";
        };
        return pooling;
    };
    return {
        pool("max_pool2d", true),
        pool("avg_pool2d", false),
        std::move(turned),
        kernel("embedding", "NxDxV",
               "weight [V, D], ids [N, D] in i64 with stride 0 over D -> y [N, D]",
               {8192, 768, 50257}, embedding),
        kernel("embedding_backward", "NxDxV", "dy [N, D], ids [N] in i64 -> dweight [V, D]",
               {8192, 768, 50257}, embedding_backward),
        std::move(adam),
        kernel("gradient_norm", "N", "g [N] -> norm [1] in f64", {32 << 20}, gradient_norm),
    };
}

}  // namespace axle::bench
