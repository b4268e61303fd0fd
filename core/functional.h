// The ops of neural networks: products, convolution, normalization, pooling, resizing, padding,
// flip(), attention and rotary embedding. Losses are in core/losses.h. core/ops.h includes this
// header and states the rules of all ops.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/size2.h"
#include "core/tensor.h"
#include "kernels/activation.h"

namespace axle {

// --- products (matmul.cpp, linear.cpp, feed_forward.cpp)
// Returns the matrix product of a and b. 1-d and 2-d operands are multiplied as in PyTorch. The
// dimensions before the last two are batches, which broadcast. Throws DTypeError unless a and b
// have one dtype other than bool, and ShapeError for a 0-d operand.
Tensor matmul(const Tensor& a, const Tensor& b);
// Returns activation(x weight^T + bias). x is [..., in], weight is [out, in], and bias is [out] or
// undefined. Throws DTypeError unless all have one floating dtype.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              Activation activation = Activation::none);
// Returns linear(linear(x, weight1, bias1, activation), weight2, bias2), with weight1 [hidden, in]
// and weight2 [out, hidden]. Throws the errors of linear(). The backward pass is fused: the product
// that computes the hidden gradient also applies the derivative of the activation.
Tensor feed_forward(const Tensor& x, const Tensor& weight1, const Tensor& bias1,
                    const Tensor& weight2, const Tensor& bias2, Activation activation);

// --- convolution: images are [N, C, H, W] or [C, H, W] (conv.cpp). Throw ValueError unless
// strides and dilations are in [1, 2^31), paddings in [0, 2^31), and groups is positive. Throw
// DTypeError unless x, weight and bias have one floating dtype. Throw ShapeError if a dimension of
// weight or of the images other than N is empty, or if a padded image (in conv_transpose2d(), the
// result with its padding) has more than 2^40 pixels.
struct Conv2dOptions {
    Size2 stride = 1;
    Size2 padding = 0;  // zeros added on both sides
    Size2 dilation = 1;
    std::int64_t groups = 1;
};
// Returns the convolution of the images x with weight [out, C / groups, kernel h, kernel w], plus
// bias [out], which can be undefined. Throws ShapeError if the kernel is larger than the padded
// image.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});
struct ConvTranspose2dOptions {
    Size2 stride = 1;
    Size2 padding = 0;         // removed from both sides of the result
    Size2 output_padding = 0;  // added to the end of the result; below max(stride, dilation)
    std::int64_t groups = 1;
    Size2 dilation = 1;
};
// Returns the transposed convolution of the images x, which is the gradient of conv2d with respect
// to its input. weight is [C, out / groups, kernel h, kernel w]; bias [out] is added and can be
// undefined. Throws ValueError if output_padding is negative or too large, and ShapeError if the
// result would be empty.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});

// --- normalization (softmax.cpp, norm.cpp, channel_norm.cpp). Operands are floating, and all or
// none of them are f64 (DTypeError).

// Return e^x / (sum of e^x along dim), and its logarithm.
Tensor softmax(const Tensor& x, std::int64_t dim = -1);
Tensor log_softmax(const Tensor& x, std::int64_t dim = -1);
// Returns x normalized over the last dimension, times weight, plus bias. weight and bias are [size
// of the last dimension] or undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
// Returns x / sqrt(mean of x^2 + eps) over the last dimension, times weight [size of the last
// dimension], which can be undefined. The default of eps is the machine epsilon of f32 (1.2e-7), or
// of f64 (2.2e-16) for f64, as in PyTorch.
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, std::optional<double> eps = {});
// Returns x [N, C, ...] normalized over all dimensions except C. All other tensors are [C] or
// undefined. If training is true, uses the batch statistics, and changes running_mean and
// running_var in place: running = (1 - momentum) * running + momentum * batch statistic. The
// running variance is updated with the unbiased variance. Otherwise uses the running statistics and
// throws UsageError if they are undefined. In training, throws ShapeError for a single value per
// channel, and UsageError if ops are recorded and the running statistics require a gradient.
Tensor batch_norm(const Tensor& x, Tensor running_mean, Tensor running_var,
                  const Tensor& weight = {}, const Tensor& bias = {}, bool training = false,
                  double momentum = 0.1, double eps = 1e-5);
// Returns x [N, C, ...] normalized over each of `groups` groups of channels and all dimensions
// after C. weight and bias are [C] or undefined. Throws ShapeError unless groups is positive and
// divides C.
Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

// Returns x [N, C, ...] normalized over the dimensions after C. weight and bias are [C] or
// undefined. Throws ShapeError unless x has at least three dimensions.
Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                     double eps = 1e-5);
struct LocalResponseNormOptions {
    double alpha = 1e-4;
    double beta = 0.75;
    double k = 1;
};
// Returns x / (k + alpha * m)^beta, where m is the mean square over `size` neighboring channels, of
// which those outside of x [N, C, ...] are 0 (Krizhevsky et al., 2012). Throws ShapeError unless x
// has at least three dimensions, and ValueError unless size is positive.
Tensor local_response_norm(const Tensor& x, std::int64_t size,
                           const LocalResponseNormOptions& options = {});

// --- pooling over the planes of x [N, C, H, W] or [C, H, W] (pool.cpp). Throw ValueError unless
// kernels, strides, dilations and sizes are in [1, 2^31), and for a padding that is negative or too
// large. Throw ShapeError if a dimension other than N is empty, or if the result would be empty.
struct MaxPoolOptions {
    std::optional<Size2> stride = {};  // defaults to the kernel size
    Size2 padding = 0;                 // at most half the kernel; padding is never the maximum
    Size2 dilation = 1;
    bool ceil_mode = false;  // rounds output sizes up; the last window can be incomplete
};
// Returns the maximum of each window. x can also be i64, i32 or u8.
Tensor max_pool2d(const Tensor& x, Size2 kernel, const MaxPoolOptions& options = {});
// Returns the maxima, and the position h * W + w of each maximum in its plane (i64). If several
// elements are equal to the maximum, returns the position of the first one; of several NaNs, of the
// last one.
std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, Size2 kernel,
                                                  const MaxPoolOptions& options = {});
struct AvgPoolOptions {
    std::optional<Size2> stride = {};                   // defaults to the kernel size
    Size2 padding = 0;                                  // at most half the kernel
    bool ceil_mode = false;                             // as in MaxPoolOptions
    bool count_include_pad = true;                      // whether the divisor includes padding
    std::optional<std::int64_t> divisor_override = {};  // replaces the number of elements; not 0
};
// Returns the mean of each window. Throws ValueError if divisor_override is 0.
Tensor avg_pool2d(const Tensor& x, Size2 kernel, const AvgPoolOptions& options = {});
// Divide each plane of x into size.h by size.w windows of (almost) equal size and return the mean
// or the maximum of each window. Indices have the same meaning as in max_pool2d_with_indices().
Tensor adaptive_avg_pool2d(const Tensor& x, Size2 size);
Tensor adaptive_max_pool2d(const Tensor& x, Size2 size);
std::pair<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& x, Size2 size);

// --- resizing x [N, C, L], [N, C, H, W] or [N, C, D, H, W] (sampling/)
// The mode linear is for three dimensions, bilinear and bicubic are for four, trilinear is for
// five, and the other modes are for all. nearest_exact reads the element at the center of each new
// element, and area is the mean of adaptive_avg_pool2d().
enum class Interpolation : std::uint8_t {
    nearest,
    bilinear,
    nearest_exact,
    linear,
    bicubic,
    trilinear,
    area
};
struct Scale2 {
    double h, w;
    constexpr Scale2(double both) : h(both), w(both) {}  // NOLINT(google-explicit-constructor)
    constexpr Scale2(double height, double width) : h(height), w(width) {}
};
// One number for each spatial dimension of x, in order. A single number applies to all dimensions,
// as in PyTorch.
template <class T>
struct PerDimension {
    constexpr PerDimension(T all) : of{all, all, all} {}              // NOLINT: 2 means all
    constexpr PerDimension(T h, T w) : of{h, w}, count(2) {}          // rows and columns
    constexpr PerDimension(T d, T h, T w) : of{d, h, w}, count(3) {}  // also the depth
    template <class Pair>
        requires requires(const Pair& pair) { static_cast<T>(pair.h + pair.w); }
    constexpr PerDimension(const Pair& pair) : PerDimension(pair.h, pair.w) {}  // NOLINT: Size2

    T of[3] = {};
    int count = 0;  // 0: one number for all dimensions
};
struct InterpolateOptions {
    // Set exactly one of size and scale_factor. With scale_factor, the output size is floor(input
    // size * scale_factor).
    std::optional<PerDimension<std::int64_t>> size = {};
    std::optional<PerDimension<double>> scale_factor = {};
    Interpolation mode = Interpolation::nearest;
    // Keeps the centers of the corner pixels; for the linear modes and bicubic.
    bool align_corners = false;
    // Computes positions from the sizes, not from scale_factor. The mode area always does this.
    bool recompute_scale_factor = false;
    // Makes a smaller result use all pixels, as in Pillow; for bilinear and bicubic only.
    bool antialias = false;
};
// Returns x resized to the new size. Throws ValueError unless exactly one of size and scale_factor
// is set, scale_factor is positive, and the new size is below 2^62. Also throws ValueError for
// recompute_scale_factor with a size, and for align_corners or antialias with a mode that does not
// support it. Throws ShapeError if a size or the mode does not match the dimensions of x, or if the
// new size is not in [1, 2^31). Also throws ShapeError if a dimension other than N is empty.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

// --- padding and order (pad.cpp)
enum class PadMode : std::uint8_t { constant, reflect, replicate, circular };
// Returns a copy of x with padding. `padding` is (before, after) for the last dimension, then for
// the second to last, and so on. Negative numbers remove elements. `value` is the padding of mode
// constant. Throws ValueError if `value` is not 0 in other modes, or if the magnitude of a padding
// is 2^31 or more. In mode reflect, the padding of a dimension must be less than its size; in mode
// circular, it can be equal to the size; in mode replicate, the size must not be 0 (otherwise
// ShapeError). Throws ShapeError if `padding` has an odd length or more than 2 * x.dim() numbers,
// or removes more elements than a dimension has.
Tensor pad(const Tensor& x, const Dims& padding, PadMode mode = PadMode::constant,
           Scalar value = 0);
// Returns a copy of x, reversed along dims. Throws ValueError if a dimension is listed twice.
Tensor flip(const Tensor& x, const Dims& dims);

// --- attention (core/attention/attention.cpp)
struct AttentionOptions {
    // bool (true: attend) or floating (added to the scores); broadcast to [B, H, Tq, Tk].
    Tensor mask = {};
    double dropout_p = 0;  // in [0, 1]; there is no training flag, so pass 0 in evaluation
    bool causal = false;   // query i attends only to keys j <= i, as in PyTorch
    std::optional<double> scale = {};  // default: 1 / sqrt(D)
};
// Computes softmax(scale q k^T + mask) v. q is [B, H, Tq, D], k [B, G, Tk, D] and v [B, G, Tk, E],
// where H is a multiple of G (grouped queries). Returns [B, H, Tq, E]. Memory is linear in Tq and
// Tk, unless E differs from D or the mask requires a gradient; then all scores are stored. cuDNN
// also needs memory for a copy of the mask, and up to 2 GiB for deterministic gradients. The result
// of a query whose keys are all masked is zero. Can be differentiated twice only if E differs from
// D, or if the mask requires a gradient and dropout_p is not 0. Throws ShapeError if shapes do not
// match, DTypeError unless q, k and v have one floating dtype and the mask is bool or floating, and
// ValueError unless dropout_p is in [0, 1].
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});
// Returns x [..., T, D] with the pairs of elements (i, i + D/2) rotated by the angle position *
// base^(-2i/D), as in Llama. Row t has the position offset + t. Throws ShapeError unless x has two
// dimensions or more and D is even.
Tensor rotary_embedding(const Tensor& x, double base = 10000, std::int64_t offset = 0);

}  // namespace axle
