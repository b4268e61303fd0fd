#include "nn/layers/conv.h"

#include "nn/layers/spatial/conv_parameters.h"

namespace axle::nn {
namespace {

// Returns {left, right, top, bottom}, the argument of pad().
Dims padding_around(const ConvPadding& padding, Size2 kernel, Size2 dilation) {
    if (!padding.same) return {padding.size.w, padding.size.w, padding.size.h, padding.size.h};
    const std::int64_t w = dilation.w * (kernel.w - 1), h = dilation.h * (kernel.h - 1);
    return {w / 2, w - w / 2, h / 2, h - h / 2};
}

}  // namespace

Conv2d::Conv2d(std::int64_t in, std::int64_t out, Size2 kernel, Conv2dLayerOptions options)
    : options_(options) {
    check_conv_sizes("Conv2d", in, out, {kernel.h, kernel.w}, options.groups);
    if (options.padding.same && options.stride != Size2(1))
        throw ValueError(
            str("Conv2d: kSamePadding needs a stride of 1: the stride is ", options.stride));
    make_conv_parameters(weight, bias, out, in / options.groups, {kernel.h, kernel.w}, out,
                         options.bias);
    conv_ = {.stride = options.stride, .dilation = options.dilation, .groups = options.groups};
    around_ = padding_around(options.padding, kernel, options.dilation);
    const bool symmetric = around_[0] == around_[1] && around_[2] == around_[3];
    if (options.padding_mode != PadMode::constant || !symmetric) return;
    conv_.padding = {around_[2], around_[0]};
    around_ = {};
}

Tensor Conv2d::forward(const Tensor& x) {
    if (around_.empty()) return conv2d(x, weight, bias, conv_);
    return conv2d(pad(x, around_, options_.padding_mode), weight, bias, conv_);
}

ConvTranspose2d::ConvTranspose2d(std::int64_t in, std::int64_t out, Size2 kernel,
                                 ConvTranspose2dLayerOptions options)
    : options_(options) {
    check_conv_sizes("ConvTranspose2d", in, out, {kernel.h, kernel.w}, options.groups);
    make_conv_parameters(weight, bias, in, out / options.groups, {kernel.h, kernel.w}, out,
                         options.bias);
}

Tensor ConvTranspose2d::forward(const Tensor& x) {
    return conv_transpose2d(x, weight, bias,
                            {.stride = options_.stride,
                             .padding = options_.padding,
                             .output_padding = options_.output_padding,
                             .groups = options_.groups,
                             .dilation = options_.dilation});
}

Tensor ConvTranspose2d::forward(const Tensor& x, Size2 output_size) {
    const Size2 stride = options_.stride, padding = options_.padding, dilation = options_.dilation;
    const Dims extra =
        output_padding_for("ConvTranspose2d", x, weight, {output_size.h, output_size.w},
                           {stride.h, stride.w}, {padding.h, padding.w}, {dilation.h, dilation.w});
    return conv_transpose2d(x, weight, bias,
                            {.stride = stride,
                             .padding = padding,
                             .output_padding = {extra[0], extra[1]},
                             .groups = options_.groups,
                             .dilation = dilation});
}

}  // namespace axle::nn
