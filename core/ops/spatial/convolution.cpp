// Convolution of signals, which are images with a height of 1.
#include "core/autograd/autocast.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/spatial/conv_checks.h"
#include "core/profiler/profiler.h"
#include "core/spatial.h"

namespace axle {
namespace {

Tensor with_height(const Tensor& x) { return unsqueeze(x, -2); }

}  // namespace

Tensor conv1d(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in,
              const Conv1dOptions& options) {
    const profiler::OpScope scope("conv1d");
    check_device("conv1d", {&x_in, &weight_in, bias_in.defined() ? &bias_in : &x_in});
    const Tensor x = autocast(x_in), weight = autocast(weight_in), bias = autocast(bias_in);
    conv_size("conv1d", x, weight, bias,
              {.stride = options.stride,
               .padding = options.padding,
               .dilation = options.dilation,
               .groups = options.groups});
    return squeeze(conv2d(with_height(x), with_height(weight), bias,
                          {.stride = {1, options.stride},
                           .padding = {0, options.padding},
                           .dilation = {1, options.dilation},
                           .groups = options.groups}),
                   -2);
}

Tensor conv_transpose1d(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in,
                        const ConvTranspose1dOptions& options) {
    const profiler::OpScope scope("conv_transpose1d");
    check_device("conv_transpose1d", {&x_in, &weight_in, bias_in.defined() ? &bias_in : &x_in});
    const Tensor x = autocast(x_in), weight = autocast(weight_in), bias = autocast(bias_in);
    conv_transpose_size("conv_transpose1d", x, weight, bias,
                        {.stride = options.stride,
                         .padding = options.padding,
                         .dilation = options.dilation,
                         .groups = options.groups,
                         .output_padding = options.output_padding});
    return squeeze(conv_transpose2d(with_height(x), with_height(weight), bias,
                                    {.stride = {1, options.stride},
                                     .padding = {0, options.padding},
                                     .output_padding = {0, options.output_padding},
                                     .groups = options.groups,
                                     .dilation = {1, options.dilation}}),
                   -2);
}

}  // namespace axle
