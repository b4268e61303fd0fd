// All tensor operations by family. The file in core/ops/ that implements a family is named in
// parentheses.
//
// The following rules apply to all ops. Operands must be on one device (DeviceError). Dtypes are
// promoted as in PyTorch. Dimensions can be negative. Errors name the op and the operands. Results
// are new tensors, unless the comment of the op contains "view".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/indexing.h"
#include "core/size2.h"
#include "core/tensor.h"
#include "kernels/activation.h"

namespace axle {

// --- creation (create.cpp)
Tensor empty(const Shape& shape, TensorOptions options = {});
Tensor empty_like(const Tensor& x);  // returns a contiguous tensor
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor ones(const Shape& shape, TensorOptions options = {});
Tensor full(const Shape& shape, Scalar value, TensorOptions options = {});
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor full_like(const Tensor& x, Scalar value);
// Returns start, start + step, ... below end. The dtype is f32 if any argument is a floating
// number, and i64 otherwise. Throws ValueError if the step is 0 or leads away from the end.
Tensor arange(Scalar end, InferredOptions options = {});
Tensor arange(Scalar start, Scalar end, InferredOptions options = {});
Tensor arange(Scalar start, Scalar end, Scalar step, InferredOptions options = {});
// Returns a tensor with the values in row-major order. The dtype is that of the values, but f32 for
// double: tensor({1, 2}, {2}) is i64 and tensor({1.5, 2}, {2}) is f32. Throws ShapeError unless
// there are numel(shape) values.
Tensor tensor(std::span<const double> values, const Shape& shape, InferredOptions options = {});
Tensor tensor(std::span<const float> values, const Shape& shape, InferredOptions options = {});
Tensor tensor(std::span<const std::int64_t> values, const Shape& shape,
              InferredOptions options = {});
Tensor tensor(std::span<const int> values, const Shape& shape, InferredOptions options = {});
Tensor tensor(std::span<const bool> values, const Shape& shape, InferredOptions options = {});
Tensor tensor(std::initializer_list<Scalar> values, const Shape& shape,
              InferredOptions options = {});
template <TensorElement T>
Tensor tensor(std::initializer_list<T> values, const Shape& shape, InferredOptions options = {}) {
    return tensor(std::span<const T>(values.begin(), values.size()), shape, options);
}
Tensor tensor(Scalar value, InferredOptions options = {});  // 0-d
template <TensorElement T>
Tensor tensor(T value, InferredOptions options = {}) {
    return tensor({value}, Shape(), options);
}
// Return a 1-d tensor: tensor({1, 2, 3}).
template <TensorElement T>
Tensor tensor(std::initializer_list<T> values) {
    return tensor(values, {static_cast<std::int64_t>(values.size())});
}
inline Tensor tensor(std::initializer_list<Scalar> values) {
    return tensor(values, {static_cast<std::int64_t>(values.size())});
}
template <TensorElement T>
Tensor tensor(const std::vector<T>& values) {
    return tensor(values, {static_cast<std::int64_t>(values.size())});
}

// --- random, from the default generator (random.cpp)
Tensor rand(const Shape& shape, TensorOptions options = {});
Tensor randn(const Shape& shape, TensorOptions options = {});
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape,
               TensorOptions options = {i64});
Tensor dropout(const Tensor& x, double p, bool training = true);
// Draws indices (i64) [..., samples] from weights [..., n] >= 0, with probabilities proportional to
// the weights. Without replacement by default.
Tensor multinomial(const Tensor& weights, std::int64_t samples, bool replacement = false);

// --- dtype, device, layout (convert.cpp)
Tensor to(const Tensor& x, DType dtype);  // returns x itself if nothing changes
// Copies x to another device. A copy to a GPU is queued on the current stream. If x is in pinned
// memory and non_blocking is true, the call does not wait for this copy; do not write to x before
// the copy is done. A copy to the CPU always waits.
Tensor to(const Tensor& x, Device device, bool non_blocking = false);
Tensor contiguous(const Tensor& x);
Tensor clone(const Tensor& x);

// --- views: no copy unless stated (view.cpp; split, chunk, cat and stack: cat.cpp)
Tensor view(const Tensor& x,
            const Shape& shape);  // one size can be -1; throws ShapeError if a copy is needed
Tensor reshape(const Tensor& x, const Shape& shape);  // copies if needed
Tensor flatten(const Tensor& x, std::int64_t from = 0, std::int64_t to = -1);
Tensor transpose(const Tensor& x, std::int64_t a, std::int64_t b);
Tensor permute(const Tensor& x, const Dims& order);
Tensor expand(const Tensor& x, const Shape& shape);  // -1 does not change a size
Tensor squeeze(const Tensor& x);                     // removes all dimensions of size 1
Tensor squeeze(const Tensor& x, std::int64_t dim);
Tensor unsqueeze(const Tensor& x, std::int64_t dim);
Tensor narrow(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t length);
Tensor slice(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end,
             std::int64_t step = 1);
Tensor select(const Tensor& x, std::int64_t dim, std::int64_t index);
std::vector<Tensor> split(const Tensor& x, std::int64_t size, std::int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const Dims& sizes, std::int64_t dim = 0);
std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim = 0);
Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim = 0);    // copies the elements
Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim = 0);  // copies the elements
// Reverses broadcasting: sums x over the repeated dimensions and returns a tensor of `shape`.
Tensor sum_to(const Tensor& x, const Shape& shape);

// --- arithmetic (arithmetic.cpp)
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);  // true division, also for integers
Tensor add(const Tensor& a, Scalar b);
Tensor sub(const Tensor& a, Scalar b);
Tensor mul(const Tensor& a, Scalar b);
Tensor div(const Tensor& a, Scalar b);
Tensor sub(Scalar a, const Tensor& b);
Tensor div(Scalar a, const Tensor& b);
Tensor pow(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, Scalar exponent);
Tensor pow(Scalar base, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);  // equal elements share the gradient
Tensor minimum(const Tensor& a, const Tensor& b);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, Scalar b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, Scalar b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, Scalar b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, Scalar b) { return div(a, b); }
inline Tensor operator+(Scalar a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(Scalar a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(Scalar a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(Scalar a, const Tensor& b) { return div(a, b); }

// --- comparison to boolean (compare.cpp)
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, Scalar b);
Tensor ne(const Tensor& a, Scalar b);
Tensor lt(const Tensor& a, Scalar b);
Tensor le(const Tensor& a, Scalar b);
Tensor gt(const Tensor& a, Scalar b);
Tensor ge(const Tensor& a, Scalar b);
inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
inline Tensor operator==(const Tensor& a, Scalar b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, Scalar b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, Scalar b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, Scalar b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, Scalar b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, Scalar b) { return ge(a, b); }
inline Tensor operator==(Scalar a, const Tensor& b) { return eq(b, a); }
inline Tensor operator!=(Scalar a, const Tensor& b) { return ne(b, a); }
inline Tensor operator<(Scalar a, const Tensor& b) { return gt(b, a); }
inline Tensor operator<=(Scalar a, const Tensor& b) { return ge(b, a); }
inline Tensor operator>(Scalar a, const Tensor& b) { return lt(b, a); }
inline Tensor operator>=(Scalar a, const Tensor& b) { return le(b, a); }

// Returns a where the condition is true, and b elsewhere. A number does not change the dtype of a
// tensor within its category; two numbers give f32 or i64.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
Tensor where(const Tensor& condition, Scalar a, const Tensor& b);
Tensor where(const Tensor& condition, Scalar a, Scalar b);
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);

// --- one operand (unary.cpp)
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);
enum class Gelu : std::uint8_t { erf, tanh };  // exact formula, or GPT-2's approximation
Tensor gelu(const Tensor& x, Gelu form = Gelu::erf);
Tensor silu(const Tensor& x);
Tensor softsign(const Tensor& x);  // computes x / (1 + |x|)
Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high);
inline Tensor operator-(const Tensor& x) { return neg(x); }

// --- reductions; an empty list of dims means all (reduce.cpp)
Tensor sum(const Tensor& x, const Dims& dims = {},
           bool keepdim = false);  // bool and integers give i64
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor max(const Tensor& x, const Dims& dims = {},
           bool keepdim = false);  // equal elements share the gradient
Tensor min(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor argmax(const Tensor& x, std::int64_t dim, bool keepdim = false);  // the first maximum
Tensor argmin(const Tensor& x, std::int64_t dim, bool keepdim = false);
// Returns the variance over dims. The sum of squares is divided by n - correction; the default of 1
// is PyTorch's.
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
// Returns the cumulative sum along dim (scan.cpp); bool and integers give i64.
Tensor cumsum(const Tensor& x, std::int64_t dim);
// Returns the cumulative product along dim; bool and integers give i64. The gradient is exact even
// if x contains zeros.
Tensor cumprod(const Tensor& x, std::int64_t dim);

// --- indexing; indices are i64 or i32 (index.cpp; index: indexing.cpp)
// Returns the elements that the indices select, as x[...] in PyTorch (see core/indexing.h).
Tensor index(const Tensor& x, const std::vector<TensorIndex>& indices);
Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index);
Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index);
// Returns a copy of x to which src is added at index along dim. Repeated indices accumulate in
// order.
Tensor scatter_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src);
// Returns the rows of weight [n, width] selected by ids [...], as [..., width]. The gradient of row
// padding_idx is zero.
Tensor embedding(const Tensor& ids, const Tensor& weight,
                 std::optional<std::int64_t> padding_idx = {});
Tensor one_hot(const Tensor& ids, std::int64_t classes);
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);
// Returns the k largest (or smallest) elements along dim, sorted, and their i64 indices. If
// elements are equal, the lower index is first.
std::pair<Tensor, Tensor> topk(const Tensor& x, std::int64_t k, std::int64_t dim = -1,
                               bool largest = true);
// Returns all elements along dim, sorted, and their i64 indices. NaN is larger than every number.
// The sort is stable in both directions.
std::pair<Tensor, Tensor> sort(const Tensor& x, std::int64_t dim = -1, bool descending = false);
Tensor argsort(const Tensor& x, std::int64_t dim = -1, bool descending = false);

// --- products (matmul.cpp, linear.cpp, feed_forward.cpp)
// Returns the matrix product of a and b. 1-d and 2-d operands are multiplied as in PyTorch. All
// other dimensions are batches, which broadcast.
Tensor matmul(const Tensor& a, const Tensor& b);
// Returns activation(x weight^T + bias). x is [..., in], weight is [out, in], and bias is [out] or
// undefined.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              Activation activation = Activation::none);
// Returns linear(linear(x, weight1, bias1, activation), weight2, bias2). Its backward pass is
// fused: the product that computes the hidden gradient also applies the activation's derivative.
Tensor feed_forward(const Tensor& x, const Tensor& weight1, const Tensor& bias1,
                    const Tensor& weight2, const Tensor& bias2, Activation activation);

// --- convolution: images are [N, C, H, W] or [C, H, W] (conv.cpp)
struct Conv2dOptions {
    Size2 stride = 1;
    Size2 padding = 0;  // zeros added on both sides
    Size2 dilation = 1;
    std::int64_t groups = 1;
};
// Returns the convolution of x [N, C, H, W] with weight [out, C / groups, kernel h, kernel w], plus
// bias [out], which can be undefined.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});
struct ConvTranspose2dOptions {
    Size2 stride = 1;
    Size2 padding = 0;         // removed from both sides of the result
    Size2 output_padding = 0;  // added to the end of the result; below the stride or dilation
    std::int64_t groups = 1;
    Size2 dilation = 1;
};
// Returns the transposed convolution of x [N, C, H, W], which is the gradient of conv2d with
// respect to its input. bias [out] is added and can be undefined. weight is [C, out / groups,
// kernel h, kernel w].
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});

// --- normalization (softmax.cpp, norm.cpp, channel_norm.cpp)
Tensor softmax(const Tensor& x, std::int64_t dim = -1);
Tensor log_softmax(const Tensor& x, std::int64_t dim = -1);
// Returns x normalized over the last dimension. weight and bias are [width] or undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6);
// Returns x [N, C, ...] normalized over all dimensions but C. weight and bias are [C] or undefined.
// If training is true, it uses the batch statistics and moves running_mean and running_var towards
// them by `momentum` (with the unbiased variance). Otherwise it uses the running statistics.
Tensor batch_norm(const Tensor& x, Tensor running_mean, Tensor running_var,
                  const Tensor& weight = {}, const Tensor& bias = {}, bool training = false,
                  double momentum = 0.1, double eps = 1e-5);
// Returns x [N, C, ...] normalized over each of `groups` groups of channels and all dimensions
// after C. weight and bias are [C] or undefined.
Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

// --- pooling over the planes of x [N, C, H, W] or [C, H, W] (pool.cpp)
struct MaxPoolOptions {
    std::optional<Size2> stride = {};  // defaults to the kernel size
    Size2 padding = 0;                 // at most half the kernel; padding is never the maximum
    Size2 dilation = 1;
    bool ceil_mode = false;  // rounds output sizes up; the last window can be incomplete
};
Tensor max_pool2d(const Tensor& x, Size2 kernel, const MaxPoolOptions& options = {});
// Returns the maxima, and the position h * W + w of each maximum in its plane (i64). If several
// elements are the maximum, it is the position of the first one.
std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, Size2 kernel,
                                                  const MaxPoolOptions& options = {});
struct AvgPoolOptions {
    std::optional<Size2> stride = {};  // defaults to the kernel size
    Size2 padding = 0;                 // at most half the kernel
    bool ceil_mode = false;
    bool count_include_pad = true;  // whether the divisor includes padding
    std::optional<std::int64_t> divisor_override = {};
};
Tensor avg_pool2d(const Tensor& x, Size2 kernel, const AvgPoolOptions& options = {});
// Return the mean or the maximum of each of size.h by size.w windows of (almost) equal size, which
// divide each plane of x.
Tensor adaptive_avg_pool2d(const Tensor& x, Size2 size);
Tensor adaptive_max_pool2d(const Tensor& x, Size2 size);
std::pair<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& x, Size2 size);

// --- resizing the planes of x [N, C, H, W] (interpolate.cpp)
enum class Interpolation : std::uint8_t { nearest, bilinear };
struct Scale2 {
    double h, w;
    constexpr Scale2(double both) : h(both), w(both) {}  // NOLINT(google-explicit-constructor)
    constexpr Scale2(double height, double width) : h(height), w(width) {}
};
struct InterpolateOptions {
    std::optional<Size2> size = {};           // output size; set this or scale_factor
    std::optional<Scale2> scale_factor = {};  // ratio of output to input size, rounded down
    Interpolation mode = Interpolation::nearest;
    bool align_corners = false;  // keeps the centers of the corner pixels; bilinear only
};
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

// --- padding and order (pad.cpp)
enum class PadMode : std::uint8_t { constant, reflect, replicate, circular };
// Returns x with padding. `padding` is (before, after) for the last dimension, then for the second
// to last, and so on. Negative numbers remove elements.
Tensor pad(const Tensor& x, const Dims& padding, PadMode mode = PadMode::constant,
           Scalar value = 0);
Tensor flip(const Tensor& x, const Dims& dims);  // copies the elements

// --- attention (attention.cpp)
struct AttentionOptions {
    Tensor mask = {};      // bool (true: attend) or floating (added); broadcast to [B, H, Tq, Tk]
    double dropout_p = 0;  // must be 0 outside training
    bool causal = false;   // query i attends to keys j <= i, as in PyTorch
    std::optional<double> scale = {};  // default: 1 / sqrt(D)
};
// Computes softmax(scale q k^T + mask) v. q is [B, H, Tq, D]; k and v are [B, G, Tk, D], where H is
// a multiple of G (grouped queries). Returns [B, H, Tq, D]. Memory is linear in Tq and Tk. The
// result of a query that can attend to no key is zero.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});
// Rotates the pairs (i, i + D/2) of x [..., T, D] by the angle position * base^(-2i/D), as in
// Llama. Row t has the position offset + t.
Tensor rotary_embedding(const Tensor& x, double base = 10000, std::int64_t offset = 0);

// --- losses (loss.cpp)
enum class Reduction : std::uint8_t { none, mean, sum };
struct CrossEntropyOptions {
    std::int64_t ignore_index = -100;
    double label_smoothing = 0;
    Reduction reduction = Reduction::mean;  // the mean is over all targets except ignore_index
};
// Returns the cross entropy of logits [N, C] and class indices targets [N]. The result is 0-d, or
// [N] with Reduction::none.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options = {});
// Returns cross_entropy(linear(x, weight), targets) without storing the [N, C] logits. x is [N, K]
// and weight is [C, K]. The reduction must be mean or sum.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            const CrossEntropyOptions& options = {});
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
struct BinaryCrossEntropyOptions {
    Tensor weight = {};      // factor of each loss; broadcast to the shape of x
    Tensor pos_weight = {};  // factor of the target's part; only for logits; broadcast
    Reduction reduction = Reduction::mean;  // the mean is over all elements
};
// Returns the binary cross entropy of probabilities x in [0, 1] and targets in [0, 1], which have
// one shape. Logarithms are at least -100 and gradients are finite, as in PyTorch. On a CPU, throws
// ValueError for other probabilities. Prefer the form with logits, which is more accurate.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target,
                            const BinaryCrossEntropyOptions& options = {});
// Returns the binary cross entropy of sigmoid(x) and targets. Values and gradients are finite and
// accurate for all finite logits.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        const BinaryCrossEntropyOptions& options = {});

// --- recomputation (checkpoint.cpp)
// Returns f(inputs), but saves only the inputs: the backward pass runs f again to compute the
// tensors that its ops would have saved. Random state, autocast and grad mode are restored, so
// result and gradients are bit-identical. f must be a pure function of its inputs and of
// parameters, because it runs twice. As in PyTorch, running statistics would be updated twice.
Tensor checkpoint(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                  const std::vector<Tensor>& inputs);

}  // namespace axle
