#include "core/float8.h"

#include <utility>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/cuda.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "kernels/float8.h"
#include "kernels/ops/quantize.h"

namespace axle {
namespace {

bool is_float8(DType dtype) { return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2; }

void check_matrix(const char* op, const char* name, const Float8Tensor& x) {
    if (!is_float8(x.values.dtype()) || x.values.dim() != 2)
        throw ShapeError(str(op, ": operands must be matrices of 8-bit floats: ", name, " is ",
                             x.values.shape(), " ", x.values.dtype()));
}

const float* factor_of(const Float8Tensor& x) { return x.scale.data<float>(); }

// Returns a b^T in the given dtype. The product is computed in f32, which is accurate enough for
// sums of products of 8-bit floats.
Tensor emulated(const Float8Tensor& a, const Float8Tensor& b, DType dtype) {
    const AutocastGuard no_autocast(std::nullopt);
    const Tensor sums = matmul(float8_values(a.values), transpose(float8_values(b.values), 0, 1));
    return to(sums * (select(a.scale, 0, 1) * select(b.scale, 0, 1)), dtype);
}

}  // namespace

bool has_float8(Device device) {
    if (!device.is_cuda()) return false;
    const cuda::DeviceProperties properties = cuda::get_device_properties(device.index);
    return properties.major * 10 + properties.minor >= 89;
}

float float8_range(DType dtype) {
    return dtype == DType::f8_e5m2 ? Float8E5M2::largest() : Float8E4M3::largest();
}

Float8Tensor to_float8(const Tensor& x_in, DType dtype, const Tensor& scale,
                       const Tensor& largest) {
    constexpr const char* kOp = "to_float8";
    const profiler::OpScope scope(kOp);
    const NoGrad no_grad;
    check_floating(kOp, x_in);
    if (!is_float8(dtype))
        throw DTypeError(str(kOp, ": the dtype must be an 8-bit float: ", dtype));
    check_device(kOp, {&x_in, &scale, largest.defined() ? &largest : &scale});
    const Tensor x = contiguous(x_in);
    Tensor y = empty(x.shape(), {.dtype = dtype, .device = x.device()});
    launch(x.device(), [&](auto& on) {
        kernels::quantize(on, x.view(), scale.data<float>(), y.view(),
                          largest.defined() ? static_cast<float*>(largest.raw_data()) : nullptr);
    });
    return {y, scale};
}

Float8Tensor to_float8(const Tensor& x_in, DType dtype, bool power_of_two) {
    const NoGrad no_grad;
    check_floating("to_float8", x_in);
    const Tensor x = contiguous(x_in);
    Tensor largest = zeros({}, {.device = x.device()});
    Tensor scale = empty({2}, {.device = x.device()});
    launch(x.device(), [&](auto& on) {
        kernels::find_largest(on, x.view(), largest.data<float>());
        kernels::current_scale(on, largest.data<float>(), float8_range(dtype), power_of_two,
                               scale.data<float>());
    });
    return to_float8(x, dtype, scale, {});
}

Tensor float8_values(const Tensor& values) {
    const Tensor x = contiguous(values);
    Tensor y = empty(x.shape(), {.device = x.device()});
    launch(x.device(), [&](auto& on) { kernels::dequantize(on, x.view(), y.view()); });
    return y;
}

Float8Tensor transposed(const Float8Tensor& x) {
    return {contiguous(transpose(x.values, 0, 1)), x.scale};
}

Tensor float8_matmul(const Float8Tensor& a, const Float8Tensor& b,
                     const Float8MatmulOptions& options) {
    constexpr const char* kOp = "float8_matmul";
    const profiler::OpScope scope(kOp);
    const NoGrad no_grad;
    check_matrix(kOp, "a", a);
    check_matrix(kOp, "b", b);
    check_device(kOp, {&a.values, &b.values, &a.scale, &b.scale});
    if (a.values.size(1) != b.values.size(1))
        throw ShapeError(str(kOp, ": inner dimensions differ: a is ", a.values.shape(), ", b is ",
                             b.values.shape()));
    if (options.emulate || !has_float8(a.values.device())) return emulated(a, b, options.dtype);
    // The kernel writes f32 or bf16, so f16 results are converted.
    const DType out = options.dtype == f16 ? f32 : options.dtype;
    Tensor c =
        empty({a.values.size(0), b.values.size(0)}, {.dtype = out, .device = a.values.device()});
    const Tensor left = contiguous(a.values), right = contiguous(b.values);
    bool done = false;
    launch(c.device(), [&](auto& on) {
        done = kernels::float8_matmul(on, left.view(), right.view(), factor_of(a) + 1,
                                      factor_of(b) + 1, options.fast, c.view());
    });
    return done ? to(c, options.dtype) : emulated(a, b, options.dtype);
}

void update_float8_scales(const Float8History& rule, Tensor& history, Tensor& scales) {
    kernels::DelayedScaling scaling = {.length = history.size(0),
                                       .most_recent = rule.most_recent,
                                       .margin = static_cast<float>(rule.margin),
                                       .rescales = rule.rescales};
    for (int i = 0; i < 3; ++i) scaling.range[i] = float8_range(rule.dtypes[i]);
    launch(history.device(), [&](auto& on) {
        kernels::update_delayed_scales(on, scaling, history.data<float>(), scales.data<float>());
    });
}

}  // namespace axle
