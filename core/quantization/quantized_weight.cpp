#include "core/quantization/quantized_weight.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/linear.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/quantize.h"

namespace axle {
namespace {

constexpr const char* kQuantizedLinear = "quantized_linear";
constexpr std::int64_t kBlockElements = std::int64_t{1} << 20;

kernels::QuantizedMatrix matrix_of(const QuantizedWeight& w) {
    kernels::QuantizedMatrix m;
    m.format = w.options.format, m.columns = w.in, m.block = w.options.block_size;
    m.values = w.values.raw_data();
    if (w.nested_absmax.defined()) {
        m.absmax_codes = w.absmax.data<std::uint8_t>();
        m.nested_absmax = w.nested_absmax.data<float>();
        m.nested_offset = w.nested_offset.data<float>();
    } else {
        m.absmax = w.absmax.data<float>();
    }
    return m;
}

// Returns the number of rows that are dequantized together: a multiple of 16, if possible.
std::int64_t rows_of_block(const QuantizedWeight& w) {
    const std::int64_t rows = std::max<std::int64_t>(1, kBlockElements / w.in);
    return std::min(w.out, rows < 16 ? rows : rows / 16 * 16);
}

// Returns x W^T + bias for x [..., in] or, if `transposed` is true, x W for x [..., out], without
// recording. `bias` can be undefined.
Tensor multiply(const Tensor& x, const QuantizedWeight& w, const Tensor& bias, bool transposed) {
    const NoGrad no_grad;
    const Tensor rows = flatten_rows(x);
    // x W is a sum over the blocks of rows of W, which is rounded to 16 bits once.
    const DType dtype = transposed && is_half(x.dtype()) ? f32 : x.dtype();
    Tensor y =
        empty({rows.size(0), transposed ? w.in : w.out}, {.dtype = dtype, .device = x.device()});
    const std::int64_t step = rows_of_block(w);
    const Tensor block = empty({step, w.in}, {.dtype = x.dtype(), .device = x.device()});
    for (std::int64_t first = 0; first < w.out; first += step) {
        const std::int64_t n = std::min(step, w.out - first);
        Tensor part = narrow(block, 0, 0, n);
        kernels::MatmulEpilogue epilogue;
        launch(x.device(), [&](auto& on) {
            kernels::dequantize(on, matrix_of(w), first, part.view());
            if (transposed) {
                epilogue.accumulate = first > 0;
                return kernels::matmul(on, narrow(rows, 1, first, n).view(), part.view(), y.view(),
                                       epilogue);
            }
            const Tensor bias_part = bias.defined() ? narrow(bias, 0, first, n) : bias;
            epilogue.bias = view_or_none(bias_part);
            kernels::matmul(on, rows.view(), transpose(part, 0, 1).view(),
                            narrow(y, 1, first, n).view(), epilogue);
        });
    }
    Shape shape = x.shape();
    shape[shape.size() - 1] = y.size(1);
    return to(reshape(y, shape), x.dtype());
}

// Returns x with the values that LLM.int8 multiplies (see llm_int8_threshold), without recording.
Tensor round_to_int8(const Tensor& x, double threshold) {
    constexpr double kLargest = 127;
    const NoGrad no_grad;
    const Tensor rows = flatten_rows(x);
    Tensor rest = rows, is_outlier_column;
    if (threshold > 0) {
        const Tensor is_outlier = rows.abs() >= threshold;
        is_outlier_column = is_outlier.any({0});
        rest = masked_fill(rows, is_outlier, 0);
    }
    Tensor largest = amax(rest.abs(), {1}, true);
    largest = masked_fill(largest, largest == 0, 1);  // rows of zeros
    Tensor rounded = round(rest * (kLargest / largest)) * (largest / kLargest);
    if (threshold > 0) rounded = where(is_outlier_column, rows, rounded);
    return reshape(rounded, x.shape());
}

// A weight saved for the backward pass, which detects changes of the values.
struct SavedWeight {
    QuantizedWeight weight;
    SavedTensor values, absmax;
    explicit SavedWeight(const QuantizedWeight& w)
        : weight(w), values(saved(w.values)), absmax(saved(w.absmax)) {}
    QuantizedWeight get() const {
        QuantizedWeight w = weight;
        w.values = values, w.absmax = absmax;
        return w;
    }
};

// multiply() with a result in `dtype`, recorded with `x_in`, from which autocast and
// round_to_int8() computed x. Without them, both are the same.
Tensor product(const Tensor& x_in, const Tensor& x, const QuantizedWeight& w, const Tensor& bias,
               bool transposed, DType dtype) {
    return record(kQuantizedLinear, to(multiply(x, w, bias, transposed), dtype), {x_in},
                  [w = SavedWeight(w), transposed](const Grads& dy, Needs) -> Grads {
                      return {product(dy[0], dy[0], w.get(), {}, !transposed, dy[0].dtype())};
                  });
}

}  // namespace

std::int64_t QuantizedWeight::bytes() const {
    std::int64_t total = 0;
    for (const Tensor* t : {&values, &absmax, &nested_absmax, &nested_offset})
        if (t->defined()) total += t->numel() * size_of(t->dtype());
    return total;
}

QuantizedWeight quantize_weight(const Tensor& weight, const WeightQuantization& options) {
    constexpr const char* kWho = "quantize_weight";
    const profiler::OpScope scope(kWho);
    const NoGrad no_grad;
    check_floating(kWho, weight, "the weight");
    if (weight.dim() != 2 || weight.numel() == 0)
        throw ShapeError(
            str(kWho, ": the weight must be [out, in] and not empty: ", weight.shape()));
    const std::int64_t block = options.block_size;
    if (block < 32 || block > 4096 || !std::has_single_bit(static_cast<std::uint64_t>(block)))
        throw ValueError(str(kWho, ": block_size must be a power of two in [32, 4096]: ", block));
    if (const auto& threshold = options.llm_int8_threshold) {
        if (options.format != WeightFormat::int8)
            throw ValueError(str(kWho, ": llm_int8_threshold applies to the format int8 only"));
        if (!std::isfinite(*threshold) || *threshold < 0)
            throw ValueError(
                str(kWho, ": llm_int8_threshold must be finite and at least 0: ", *threshold));
    }
    if (weight.device().is_meta())
        throw DeviceError(
            str(kWho, ": the weight ", weight.shape(), " is on the meta device and has no values"));
    const Tensor x = contiguous(to(weight.detach(), Device::cpu()));
    const std::int64_t count = x.numel(), blocks = (count + block - 1) / block;
    QuantizedWeight w;
    w.options = options, w.out = x.size(0), w.in = x.size(1), w.dtype = x.dtype();
    const bool is_int8 = options.format == WeightFormat::int8;
    w.values =
        is_int8 ? empty(x.shape(), {.dtype = DType::i8}) : empty({(count + 1) / 2}, {.dtype = u8});
    w.absmax = empty({is_int8 ? w.out : blocks});
    launch_cpu(kWho, x.device(), [&](kernels::Cpu& on) {
        float* const absmax = w.absmax.data<float>();
        if (is_int8)
            kernels::quantize_int8(on, x.view(), static_cast<std::int8_t*>(w.values.raw_data()),
                                   absmax);
        else
            kernels::quantize_nf4(on, x.view(), block, w.values.data<std::uint8_t>(), absmax);
    });
    if (!isfinite(w.absmax).all().item())
        throw ValueError(
            str(kWho, ": the weight ", x.shape(), " has an element that is infinite or NaN"));
    if (!is_int8 && options.double_quantization) {
        const Tensor absmax = std::exchange(w.absmax, empty({blocks}, {.dtype = u8}));
        w.nested_absmax = empty({(blocks + kernels::kAbsmaxGroup - 1) / kernels::kAbsmaxGroup});
        w.nested_offset = empty({1});
        kernels::quantize_absmax(cpu_context(), absmax.data<float>(), blocks,
                                 w.absmax.data<std::uint8_t>(), w.nested_absmax.data<float>(),
                                 w.nested_offset.data<float>());
    }
    for (Tensor* t : {&w.values, &w.absmax, &w.nested_absmax, &w.nested_offset})
        if (t->defined()) *t = to(*t, weight.device());
    return w;
}

Tensor dequantize_weight(const QuantizedWeight& w, DType dtype) {
    const profiler::OpScope scope("dequantize_weight");
    if (!is_floating(dtype))
        throw DTypeError(str("dequantize_weight: the dtype must be floating: ", dtype));
    const NoGrad no_grad;
    Tensor y = empty({w.out, w.in}, {.dtype = dtype, .device = w.values.device()});
    launch(y.device(), [&](auto& on) { kernels::dequantize(on, matrix_of(w), 0, y.view()); });
    return y;
}

Tensor quantized_linear(const Tensor& x_in, const QuantizedWeight& w, const Tensor& bias) {
    const profiler::OpScope scope(kQuantizedLinear);
    check_device(kQuantizedLinear, {&x_in, &w.values, bias.defined() ? &bias : &x_in});
    check_floating(kQuantizedLinear, x_in);
    if (x_in.dim() == 0 || x_in.size(-1) != w.in)
        throw ShapeError(str(kQuantizedLinear, ": the last dimension of x must be equal to the ",
                             w.in, " input features of the weight: x ", x_in.shape()));
    if (bias.defined()) {
        check_floating(kQuantizedLinear, bias, "bias");
        if (bias.shape() != Shape{w.out})
            throw ShapeError(str(kQuantizedLinear, ": bias must be [", w.out, "]: ", bias.shape()));
    }
    // The product adds a bias that needs no gradient.
    const bool is_trained = bias.defined() && grad_enabled() && bias.requires_grad();
    const Tensor x = autocast(x_in);
    Tensor input = x;
    if (const auto& threshold = w.options.llm_int8_threshold)
        input = round_to_int8(is_half(x.dtype()) ? to(x.detach(), f32) : x.detach(), *threshold);
    const Tensor y = product(x_in, input, w, is_trained ? Tensor() : bias, false, x.dtype());
    return is_trained ? y + to(bias, y.dtype()) : y;
}

}  // namespace axle
