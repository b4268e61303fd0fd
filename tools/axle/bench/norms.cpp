// The kernels of `axle bench` that normalize: softmax, layer, RMS and batch norm, cross-entropy.
#include "core/ops.h"
#include "kernels/ops/channel_norm.h"
#include "kernels/ops/loss.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/softmax.h"
#include "tools/axle/bench/kernel.h"

namespace axle::bench {
namespace {

using kernels::Cpu;

constexpr double kEpsilon = 1e-5;

template <class Prepare>
Kernel on_rows(const char* name, const char* operands, Prepare prepare) {
    return {.name = name,
            .shape = "RxC",
            .operands = operands,
            .limit = Limit::memory,
            .dtypes = {f32, f64, bf16, f16},
            .layouts = {"N", "T"},
            .shapes = {{4096, 1024}, {256, 768}},
            .prepare = [=](const Case& c) { return prepare(c, c.shape[0], c.shape[1]); }};
}

DType statistics(DType dtype) { return dtype == f64 ? f64 : f32; }

template <class F>
Kernel softmax_kernel(const char* name, F f) {
    return on_rows(name, "x [R, C] -> y [R, C]",
                   [=](const Case& c, std::int64_t rows, std::int64_t width) -> Problem {
                       const Tensor x = matrix(rows, width, c);
                       Tensor y = empty({rows, width}, {c.dtype});
                       return {.inputs = {x},
                               .outputs = {y},
                               .call = [=](Cpu& on) mutable { f(on, x.view(), y.view()); },
                               .operations = 5 * count({rows, width})};
                   });
}

Problem softmax_backward(const Case& c, std::int64_t rows, std::int64_t width) {
    const Tensor dy = matrix(rows, width, c), y = matrix(rows, width, c);
    Tensor dx = empty({rows, width}, {c.dtype});
    return {
        .inputs = {dy, y},
        .outputs = {dx},
        .call =
            [=](Cpu& on) mutable { kernels::softmax_backward(on, dy.view(), y.view(), dx.view()); },
        .operations = 4 * count({rows, width})};
}

Problem layer_norm(const Case& c, std::int64_t rows, std::int64_t width) {
    const Tensor x = matrix(rows, width, c);
    const Tensor weight = randn({width}, {c.dtype}), bias = randn({width}, {c.dtype});
    Tensor y = empty({rows, width}, {c.dtype});
    Tensor mean = empty({rows}, {statistics(c.dtype)}), rstd = empty({rows}, {statistics(c.dtype)});
    return {.inputs = {x, weight, bias},
            .outputs = {y, mean, rstd},
            .numbers = {kEpsilon},
            .call =
                [=](Cpu& on) mutable {
                    kernels::layer_norm(on, x.view(), weight.view(), bias.view(), kEpsilon,
                                        y.view(), mean.view(), rstd.view());
                },
            .operations = 8 * count({rows, width})};
}

Problem layer_norm_backward(const Case& c, std::int64_t rows, std::int64_t width) {
    const DType wide = statistics(c.dtype);
    const Tensor dy = matrix(rows, width, c), x = matrix(rows, width, c);
    const Tensor weight = randn({width}, {c.dtype});
    const Tensor mean = zeros({rows}, {wide}), rstd = ones({rows}, {wide});
    Tensor dx = empty({rows, width}, {c.dtype});
    Tensor dweight = empty({width}, {wide}), dbias = empty({width}, {wide});
    return {.inputs = {dy, x, weight, mean, rstd},
            .outputs = {dx, dweight, dbias},
            .call =
                [=](Cpu& on) mutable {
                    kernels::layer_norm_backward(on, dy.view(), x.view(), weight.view(),
                                                 mean.view(), rstd.view(), dx.view(),
                                                 dweight.view(), dbias.view());
                },
            .operations = 13 * count({rows, width})};
}

Problem rms_norm(const Case& c, std::int64_t rows, std::int64_t width) {
    const Tensor x = matrix(rows, width, c), weight = randn({width}, {c.dtype});
    Tensor y = empty({rows, width}, {c.dtype}), rstd = empty({rows}, {statistics(c.dtype)});
    return {.inputs = {x, weight},
            .outputs = {y, rstd},
            .numbers = {kEpsilon},
            .call =
                [=](Cpu& on) mutable {
                    kernels::rms_norm(on, x.view(), weight.view(), kEpsilon, y.view(), rstd.view());
                },
            .operations = 4 * count({rows, width})};
}

Problem rms_norm_backward(const Case& c, std::int64_t rows, std::int64_t width) {
    const DType wide = statistics(c.dtype);
    const Tensor dy = matrix(rows, width, c), x = matrix(rows, width, c);
    const Tensor weight = randn({width}, {c.dtype}), rstd = ones({rows}, {wide});
    Tensor dx = empty({rows, width}, {c.dtype}), dweight = empty({width}, {wide});
    return {.inputs = {dy, x, weight, rstd},
            .outputs = {dx, dweight},
            .call =
                [=](Cpu& on) mutable {
                    kernels::rms_norm_backward(on, dy.view(), x.view(), weight.view(), rstd.view(),
                                               dx.view(), dweight.view());
                },
            .operations = 10 * count({rows, width})};
}

Problem cross_entropy(const Case& c, std::int64_t rows, std::int64_t classes) {
    const Tensor logits = matrix(rows, classes, c), targets = randint(0, classes, {rows});
    const DType wide = statistics(c.dtype);
    Tensor loss = empty({rows}, {wide}), lse = empty({rows}, {wide});
    return {.inputs = {logits, targets},
            .outputs = {loss, lse},
            .call =
                [=](Cpu& on) mutable {
                    kernels::cross_entropy(on, logits.view(), targets.view(), {}, loss.view(),
                                           lse.view());
                },
            .operations = 4 * count({rows, classes})};
}

Problem cross_entropy_backward(const Case& c, std::int64_t rows, std::int64_t classes) {
    const Tensor logits = matrix(rows, classes, c), targets = randint(0, classes, {rows});
    const DType wide = statistics(c.dtype);
    const Tensor lse = full({rows}, 11.0, {wide}), dloss = ones({rows}, {wide});
    Tensor dlogits = empty({rows, classes}, {c.dtype});
    return {.inputs = {logits, targets, lse, dloss},
            .outputs = {dlogits},
            .call =
                [=](Cpu& on) mutable {
                    kernels::cross_entropy_backward(on, logits.view(), targets.view(), lse.view(),
                                                    dloss.view(), {}, dlogits.view());
                },
            .operations = 4 * count({rows, classes})};
}

Kernel on_logits(const char* name, const char* operands,
                 Problem (*prepare)(const Case&, std::int64_t, std::int64_t)) {
    Kernel kernel = on_rows(name, operands, prepare);
    kernel.shapes = {{256, 50257}, {768, 65}};
    return kernel;
}

Problem batch_norm(const Case& c) {
    const Shape shape = {c.shape[0], c.shape[1], c.shape[2], c.shape[3]};
    const std::int64_t channels = shape[1];
    const DType wide = statistics(c.dtype);
    const Tensor x = randn(shape, {c.dtype});
    const Tensor weight = randn({channels}, {c.dtype}), bias = randn({channels}, {c.dtype});
    Tensor y = empty(shape, {c.dtype}), mean = empty({channels}, {wide});
    Tensor rstd = empty({channels}, {wide});
    return {.inputs = {x, weight, bias},
            .outputs = {y, mean, rstd},
            .numbers = {kEpsilon},
            .call =
                [=](Cpu& on) mutable {
                    kernels::batch_norm(on, x.view(), weight.view(), bias.view(), kEpsilon,
                                        y.view(), mean.view(), rstd.view(), {}, {}, 0);
                },
            .operations = 8 * static_cast<double>(x.numel())};
}

}  // namespace

std::vector<Kernel> norms() {
    return {
        softmax_kernel("softmax", [](Cpu& on, ConstView x, View y) { kernels::softmax(on, x, y); }),
        on_rows("softmax_backward", "dy, y [R, C] -> dx [R, C]", softmax_backward),
        softmax_kernel("log_softmax",
                       [](Cpu& on, ConstView x, View y) { kernels::log_softmax(on, x, y); }),
        on_rows("layer_norm",
                "x [R, C], weight, bias [C] -> y [R, C], mean, rstd [R]; numbers: epsilon",
                layer_norm),
        on_rows("layer_norm_backward",
                "dy, x [R, C], weight [C], mean, rstd [R] -> dx [R, C], dweight, dbias [C]",
                layer_norm_backward),
        on_rows("rms_norm", "x [R, C], weight [C] -> y [R, C], rstd [R]; numbers: epsilon",
                rms_norm),
        on_rows("rms_norm_backward", "dy, x [R, C], weight [C], rstd [R] -> dx [R, C], dweight [C]",
                rms_norm_backward),
        {.name = "batch_norm",
         .shape = "NxCxHxW",
         .operands = "x [N, C, H, W], weight, bias [C] -> y [N, C, H, W], mean, rstd [C]; "
                     "numbers: epsilon",
         .limit = Limit::memory,
         .dtypes = {f32, f64, bf16, f16},
         .layouts = {"N"},
         .shapes = {{32, 64, 32, 32}},
         .prepare = batch_norm},
        on_logits("cross_entropy", "logits [R, C], targets [R] in i64 -> loss, lse [R]",
                  cross_entropy),
        on_logits("cross_entropy_backward",
                  "logits [R, C], targets [R] in i64, lse, dloss [R] -> dlogits [R, C]",
                  cross_entropy_backward),
    };
}

}  // namespace axle::bench
