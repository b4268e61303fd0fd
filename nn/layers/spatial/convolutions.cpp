#include "nn/layers/spatial/convolutions.h"

#include <type_traits>

#include "nn/layers/spatial/conv_parameters.h"

namespace axle::nn {
namespace {

Dims axes_of(std::int64_t size) { return size; }
Dims axes_of(const Size3& size) { return {size.d, size.h, size.w}; }

// Sets `conv`, the options of the convolution, and `around`, the padding for pad(). If the padding
// is constant and both sides are equal, `conv` has the padding and `around` is empty. Throws
// ValueError for kSamePadding with a stride other than 1.
template <class Options, class ConvOptions>
void set_padding(const char* who, const Options& options, const Dims& kernel, ConvOptions& conv,
                 Dims& around) {
    const Dims stride = axes_of(options.stride), dilation = axes_of(options.dilation);
    for (const std::int64_t n : stride)
        if (options.padding.same && n != 1)
            throw ValueError(
                str(who, ": kSamePadding needs a stride of 1: the stride is ", stride));
    conv = {.stride = options.stride, .dilation = options.dilation, .groups = options.groups};
    const Dims given = axes_of(options.padding.size);
    bool is_symmetric = true;
    for (int d = kernel.size() - 1; d >= 0; --d) {
        const std::int64_t same = dilation[d] * (kernel[d] - 1);
        around.push_back(options.padding.same ? same / 2 : given[d]);
        around.push_back(options.padding.same ? same - same / 2 : given[d]);
        is_symmetric = is_symmetric && around.back(1) == around.back(2);
    }
    if (options.padding_mode != PadMode::constant || !is_symmetric) return;
    if constexpr (std::is_same_v<decltype(conv.padding), Size3>)
        conv.padding = {around[4], around[2], around[0]};
    else
        conv.padding = around[0];
    around = {};
}

}  // namespace

Conv1d::Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel, Conv1dLayerOptions options)
    : options_(options) {
    check_conv_sizes("Conv1d", in, out, kernel, options.groups);
    set_padding("Conv1d", options, kernel, conv_, around_);
    make_conv_parameters(weight, bias, out, in / options.groups, kernel, out, options.bias);
}

Tensor Conv1d::forward(const Tensor& x) {
    if (around_.empty()) return conv1d(x, weight, bias, conv_);
    return conv1d(pad(x, around_, options_.padding_mode), weight, bias, conv_);
}

Conv3d::Conv3d(std::int64_t in, std::int64_t out, Size3 kernel, Conv3dLayerOptions options)
    : options_(options) {
    check_conv_sizes("Conv3d", in, out, axes_of(kernel), options.groups);
    set_padding("Conv3d", options, axes_of(kernel), conv_, around_);
    make_conv_parameters(weight, bias, out, in / options.groups, axes_of(kernel), out,
                         options.bias);
}

Tensor Conv3d::forward(const Tensor& x) {
    if (around_.empty()) return conv3d(x, weight, bias, conv_);
    return conv3d(pad(x, around_, options_.padding_mode), weight, bias, conv_);
}

ConvTranspose1d::ConvTranspose1d(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                 ConvTranspose1dLayerOptions options)
    : options_(options) {
    check_conv_sizes("ConvTranspose1d", in, out, kernel, options.groups);
    make_conv_parameters(weight, bias, in, out / options.groups, kernel, out, options.bias);
}

Tensor ConvTranspose1d::forward(const Tensor& x) {
    return conv_transpose1d(x, weight, bias,
                            {.stride = options_.stride,
                             .padding = options_.padding,
                             .output_padding = options_.output_padding,
                             .groups = options_.groups,
                             .dilation = options_.dilation});
}

Tensor ConvTranspose1d::forward(const Tensor& x, std::int64_t output_size) {
    const Dims extra = output_padding_for("ConvTranspose1d", x, weight, output_size,
                                          options_.stride, options_.padding, options_.dilation);
    return conv_transpose1d(x, weight, bias,
                            {.stride = options_.stride,
                             .padding = options_.padding,
                             .output_padding = extra[0],
                             .groups = options_.groups,
                             .dilation = options_.dilation});
}

ConvTranspose3d::ConvTranspose3d(std::int64_t in, std::int64_t out, Size3 kernel,
                                 ConvTranspose3dLayerOptions options)
    : options_(options) {
    check_conv_sizes("ConvTranspose3d", in, out, axes_of(kernel), options.groups);
    make_conv_parameters(weight, bias, in, out / options.groups, axes_of(kernel), out,
                         options.bias);
}

Tensor ConvTranspose3d::forward(const Tensor& x) {
    return conv_transpose3d(x, weight, bias,
                            {.stride = options_.stride,
                             .padding = options_.padding,
                             .output_padding = options_.output_padding,
                             .groups = options_.groups,
                             .dilation = options_.dilation});
}

Tensor ConvTranspose3d::forward(const Tensor& x, Size3 output_size) {
    const Dims extra = output_padding_for("ConvTranspose3d", x, weight, axes_of(output_size),
                                          axes_of(options_.stride), axes_of(options_.padding),
                                          axes_of(options_.dilation));
    return conv_transpose3d(x, weight, bias,
                            {.stride = options_.stride,
                             .padding = options_.padding,
                             .output_padding = {extra[0], extra[1], extra[2]},
                             .groups = options_.groups,
                             .dilation = options_.dilation});
}

}  // namespace axle::nn
