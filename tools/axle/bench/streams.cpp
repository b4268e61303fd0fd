// The kernels of `axle bench` that read and write matrices: elementwise functions, copies,
// reductions, dropout and sorting. A backward kernel computes the gradient of its input.
#include <utility>

#include "core/ops.h"
#include "kernels/ops/copy.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/pointwise.h"
#include "kernels/ops/random.h"
#include "kernels/ops/reduce.h"
#include "kernels/ops/scan.h"
#include "kernels/ops/sort.h"
#include "tools/axle/bench/kernel.h"

namespace axle::bench {
namespace {

using kernels::Cpu;
namespace formula = kernels::formula;

// The default shapes: one larger than most caches, and one of a small model.
const std::vector<Sizes> kMatrices = {{4096, 3072}, {768, 512}};

// Returns a kernel on matrices [R, C]. prepare(c, rows, width) creates its operands.
template <class Prepare>
Kernel on_matrices(const char* name, const char* operands, Prepare prepare) {
    return {.name = name,
            .shape = "RxC",
            .operands = operands,
            .limit = Limit::memory,
            .dtypes = {f32, f64, bf16, f16},
            .layouts = {"N", "T"},
            .shapes = kMatrices,
            .prepare = [=](const Case& c) { return prepare(c, c.shape[0], c.shape[1]); }};
}

// Returns the kernel y = f(x), where f has `operations` operations per element.
template <class F>
Kernel unary(const char* name, F f, double operations) {
    return on_matrices(
        name, "x [R, C] -> y [R, C]",
        [=](const Case& c, std::int64_t rows, std::int64_t width) -> Problem {
            const Tensor x = matrix(rows, width, c);
            Tensor y = empty({rows, width}, {c.dtype});
            return {.inputs = {x},
                    .outputs = {y},
                    .call = [=](Cpu& on) mutable { kernels::unary(on, f, x.view(), y.view()); },
                    .operations = operations * count({rows, width})};
        });
}
// Returns the kernel dx = dy f'(x).
template <class F>
Kernel unary_backward(const char* name, F f, double operations) {
    return on_matrices(name, "dy, x [R, C] -> dx [R, C]",
                       [=](const Case& c, std::int64_t rows, std::int64_t width) -> Problem {
                           const Tensor dy = matrix(rows, width, c), x = matrix(rows, width, c);
                           Tensor dx = empty({rows, width}, {c.dtype});
                           return {.inputs = {dy, x},
                                   .outputs = {dx},
                                   .call =
                                       [=](Cpu& on) mutable {
                                           kernels::unary_slope(on, f, dy.view(), x.view(),
                                                                dx.view());
                                       },
                                   .operations = operations * count({rows, width})};
                       });
}

// Prepares y = a + b. A bias is one row, which is added to all rows.
Problem sum_of_two(const Case& c, std::int64_t rows, std::int64_t width, bool bias) {
    const Tensor a = matrix(rows, width, c);
    const Tensor b =
        bias ? randn({width}, {c.dtype}).expand({rows, width}) : matrix(rows, width, c);
    Tensor y = empty({rows, width}, {c.dtype});
    return {.inputs = {a, b},
            .outputs = {y},
            .call =
                [=](Cpu& on) mutable {
                    kernels::binary(on, formula::Add{}, a.view(), b.view(), y.view());
                },
            .operations = count({rows, width})};
}

// Prepares y = f(x), where y has the given shape and dtype.
template <class F>
Problem one_to_one(const Tensor& x, const Shape& shape, DType dtype, double operations, F f) {
    Tensor y = empty(shape, {dtype});
    return {.inputs = {x},
            .outputs = {y},
            .call = [=](Cpu& on) mutable { f(on, x.view(), y.view()); },
            .operations = operations * static_cast<double>(x.numel())};
}

Kernel sum_kernel(const char* name, const char* operands, bool keeps_rows, bool keeps_columns) {
    return on_matrices(name, operands, [=](const Case& c, std::int64_t rows, std::int64_t width) {
        return one_to_one(matrix(rows, width, c),
                          {keeps_rows ? rows : 1, keeps_columns ? width : 1}, c.dtype, 1,
                          [](Cpu& on, ConstView x, View y) { kernels::sum(on, x, y); });
    });
}

Kernel convert_kernel() {
    Kernel kernel = on_matrices(
        "convert", "x [R, C] in f32 -> y [R, C]",
        [](const Case& c, std::int64_t rows, std::int64_t width) {
            return one_to_one(matrix(rows, width, {.dtype = f32, .layout = c.layout}),
                              {rows, width}, c.dtype, 0,
                              [](Cpu& on, ConstView x, View y) { kernels::copy(on, x, y); });
        });
    kernel.dtypes = {bf16, f16, f64};
    return kernel;
}

Kernel dropout_kernel() {
    Kernel kernel = on_matrices("dropout", "x [R, C] -> y [R, C]",
                                [](const Case& c, std::int64_t rows, std::int64_t width) {
                                    return one_to_one(matrix(rows, width, c), {rows, width},
                                                      c.dtype, 2, [](Cpu& on, ConstView x, View y) {
                                                          kernels::dropout(on, {}, 0.1, x, y);
                                                      });
                                });
    kernel.layouts = {"N"};
    kernel.replaceable = false;
    return kernel;
}

Kernel sort_kernel() {
    Kernel kernel = on_matrices(
        "sort", "x [R, C] -> values [R, C], indices [R, C] in i64",
        [](const Case& c, std::int64_t rows, std::int64_t width) -> Problem {
            const Tensor x = matrix(rows, width, c);
            Tensor values = empty({rows, width}, {c.dtype});
            Tensor indices = empty({rows, width}, {i64});
            return {.inputs = {x}, .outputs = {values, indices}, .call = [=](Cpu& on) mutable {
                        kernels::sort(on, false, x.view(), values.view(), indices.view());
                    }};
        });
    kernel.shapes = {{256, 4096}};
    return kernel;
}

}  // namespace

std::vector<Kernel> streams() {
    const auto copied = [](const Case& c, std::int64_t rows, std::int64_t width) {
        return one_to_one(matrix(rows, width, c), {rows, width}, c.dtype, 0,
                          [](Cpu& on, ConstView x, View y) { kernels::copy(on, x, y); });
    };
    const auto column_sums = [](const Case& c, std::int64_t rows, std::int64_t width) {
        return one_to_one(matrix(rows, width, c), {width}, c.dtype, 1,
                          [](Cpu& on, ConstView x, View y) { kernels::column_sum(on, x, y); });
    };
    const auto sums_so_far = [](const Case& c, std::int64_t rows, std::int64_t width) {
        return one_to_one(matrix(rows, width, c), {rows, width}, c.dtype, 1,
                          [](Cpu& on, ConstView x, View y) { kernels::cumsum(on, x, y); });
    };
    return {
        on_matrices("add", "a, b [R, C] -> y [R, C]",
                    [](const Case& c, std::int64_t rows, std::int64_t width) {
                        return sum_of_two(c, rows, width, false);
                    }),
        on_matrices("add_bias", "a [R, C], b [R, C] with stride 0 over the rows -> y [R, C]",
                    [](const Case& c, std::int64_t rows, std::int64_t width) {
                        return sum_of_two(c, rows, width, true);
                    }),
        unary("relu", formula::Relu{}, 1),
        unary_backward("relu_backward", formula::Relu{}, 2),
        unary("gelu", formula::Gelu{}, 5),
        unary_backward("gelu_backward", formula::Gelu{}, 9),
        unary("gelu_tanh", formula::GeluTanh{}, 8),
        unary_backward("gelu_tanh_backward", formula::GeluTanh{}, 14),
        dropout_kernel(),
        on_matrices("copy", "x [R, C] -> y [R, C]", copied),
        convert_kernel(),
        sum_kernel("sum", "x [R, C] -> y [1, 1]", false, false),
        sum_kernel("sum_rows", "x [R, C] -> y [R, 1]", true, false),
        sum_kernel("sum_columns", "x [R, C] -> y [1, C]", false, true),
        on_matrices("column_sum", "x [R, C] -> y [C]", column_sums),
        on_matrices("cumsum", "x [R, C] -> y [R, C]", sums_so_far),
        sort_kernel(),
    };
}

}  // namespace axle::bench
