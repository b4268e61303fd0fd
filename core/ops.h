// The menu: every operation on tensors, by family. Each file of core/ops/ holds one family.
//
// Rules that all share: operands live on one device (DeviceError); dtypes are promoted as PyTorch
// does; dimensions may be negative; errors name the op and the operands. Results are new tensors
// except where "view" is said.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/size2.h"
#include "core/tensor.h"

namespace axle::inline v0 {

// --- creation (create.cpp)
Tensor empty(const Shape& shape, TensorOptions options = {});
Tensor empty_like(const Tensor& x);  // contiguous
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor ones(const Shape& shape, TensorOptions options = {});
Tensor full(const Shape& shape, Scalar value, TensorOptions options = {});
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor full_like(const Tensor& x, Scalar value);
Tensor arange(Scalar end, TensorOptions options = {i64});
Tensor arange(Scalar start, Scalar end, Scalar step, TensorOptions options = {i64});
// Values in row-major order; numel(shape) of them (ShapeError).
Tensor tensor(const std::vector<double>& values, const Shape& shape, TensorOptions options = {});
Tensor tensor(std::initializer_list<double> values, const Shape& shape, TensorOptions options = {});
Tensor tensor(const std::vector<std::int64_t>& values, const Shape& shape);

// --- random, from the default generator (random.cpp)
Tensor rand(const Shape& shape, TensorOptions options = {});
Tensor randn(const Shape& shape, TensorOptions options = {});
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape,
               TensorOptions options = {i64});
Tensor dropout(const Tensor& x, double p, bool training = true);
// [..., n] non-negative weights to [..., samples] indices (i64). Without replacement by default.
Tensor multinomial(const Tensor& weights, std::int64_t samples, bool replacement = false);

// --- dtype, device, layout (convert.cpp)
Tensor to(const Tensor& x, DType dtype);  // x itself where nothing changes
// A copy on another device. To a GPU it is queued on the current stream. With non_blocking the call
// does not wait for a copy from pinned memory, whose tensor must then not be written to before the
// copy has happened. To the CPU it always waits.
Tensor to(const Tensor& x, Device device, bool non_blocking = false);
Tensor contiguous(const Tensor& x);
Tensor clone(const Tensor& x);

// --- views: no copy unless said (view.cpp)
Tensor view(const Tensor& x,
            const Shape& shape);  // one size may be -1; ShapeError if a copy is needed
Tensor reshape(const Tensor& x, const Shape& shape);  // copies where it must
Tensor flatten(const Tensor& x, std::int64_t from = 0, std::int64_t to = -1);
Tensor transpose(const Tensor& x, std::int64_t a, std::int64_t b);
Tensor permute(const Tensor& x, const Dims& order);
Tensor expand(const Tensor& x, const Shape& shape);  // -1 keeps a size
Tensor squeeze(const Tensor& x, std::int64_t dim);
Tensor unsqueeze(const Tensor& x, std::int64_t dim);
Tensor narrow(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t length);
Tensor slice(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end,
             std::int64_t step = 1);
Tensor select(const Tensor& x, std::int64_t dim, std::int64_t index);
std::vector<Tensor> split(const Tensor& x, std::int64_t size, std::int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const Dims& sizes, std::int64_t dim = 0);
std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim = 0);
Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim = 0);    // copies
Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim = 0);  // copies
// Sums what broadcasting repeated: x to shape.
Tensor sum_to(const Tensor& x, const Shape& shape);

// --- arithmetic (arithmetic.cpp)
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);  // true division
Tensor add(const Tensor& a, Scalar b);
Tensor sub(const Tensor& a, Scalar b);
Tensor mul(const Tensor& a, Scalar b);
Tensor div(const Tensor& a, Scalar b);
Tensor sub(Scalar a, const Tensor& b);
Tensor div(Scalar a, const Tensor& b);
Tensor pow(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, Scalar exponent);
Tensor maximum(const Tensor& a, const Tensor& b);  // ties share the gradient equally
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
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
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
enum class Gelu : std::uint8_t { erf, tanh };  // exact, or GPT-2's approximation
Tensor gelu(const Tensor& x, Gelu form = Gelu::erf);
Tensor silu(const Tensor& x);
Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high);
inline Tensor operator-(const Tensor& x) { return neg(x); }

// --- reductions; an empty list of dims means all (reduce.cpp)
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  // bool and ints to i64
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor max(const Tensor& x, const Dims& dims = {},
           bool keepdim = false);  // ties share the gradient
Tensor min(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor argmax(const Tensor& x, std::int64_t dim, bool keepdim = false);  // the first of ties
Tensor argmin(const Tensor& x, std::int64_t dim, bool keepdim = false);
// correction 1 divides by n - 1, as PyTorch's default.
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
// Running totals along dim (scan.cpp); bool and ints to i64.
Tensor cumsum(const Tensor& x, std::int64_t dim);

// --- indexing; indices are i64 or i32 (index.cpp)
Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index);
Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index);
// A copy of x with src added at index along dim; repeated indices add up, in order.
Tensor scatter_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src);
// Rows of weight [n, width] at ids [...]: [..., width]. The row padding_idx gets no gradient.
Tensor embedding(const Tensor& ids, const Tensor& weight,
                 std::optional<std::int64_t> padding_idx = {});
Tensor one_hot(const Tensor& ids, std::int64_t classes);
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);
// The k largest (or smallest) along dim, in order: values and i64 indices; lower index first in
// ties.
std::pair<Tensor, Tensor> topk(const Tensor& x, std::int64_t k, std::int64_t dim = -1,
                               bool largest = true);
// All along dim, in order: values and i64 indices. NaN counts as larger than every number. Always
// stable: equal ones keep their order, in both directions.
std::pair<Tensor, Tensor> sort(const Tensor& x, std::int64_t dim = -1, bool descending = false);
Tensor argsort(const Tensor& x, std::int64_t dim = -1, bool descending = false);

// --- products (matmul.cpp, linear.cpp, feed_forward.cpp)
// 1-d and 2-d operands as in PyTorch; more dimensions are batches, which broadcast.
Tensor matmul(const Tensor& a, const Tensor& b);
enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu };
// activation(x weight^T + bias): x [..., in], weight [out, in], bias [out] or undefined.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              Activation activation = Activation::none);
// linear(linear(x, weight1, bias1, activation), weight2, bias2), whose gradient passes through the
// activation as the product behind it is written.
Tensor feed_forward(const Tensor& x, const Tensor& weight1, const Tensor& bias1,
                    const Tensor& weight2, const Tensor& bias2, Activation activation);

// --- convolution: images are [N, C, H, W] or [C, H, W] (conv.cpp)
struct Conv2dOptions {
    Size2 stride = 1;
    Size2 padding = 0;  // zeros on both sides
    Size2 dilation = 1;
    std::int64_t groups = 1;
};
// weight [out, C / groups, kernel h, kernel w], bias [out] or undefined.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});
struct ConvTranspose2dOptions {
    Size2 stride = 1;
    Size2 padding = 0;         // taken away from both sides of the result
    Size2 output_padding = 0;  // added to its end; below the stride or the dilation
    std::int64_t groups = 1;
    Size2 dilation = 1;
};
// The gradient of a convolution with respect to its images: weight [C, out / groups, ...].
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});

// --- normalising (softmax.cpp, norm.cpp, channel_norm.cpp)
Tensor softmax(const Tensor& x, std::int64_t dim = -1);
Tensor log_softmax(const Tensor& x, std::int64_t dim = -1);
// Over the last dimension; weight and bias [width] or undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6);
// Over all dimensions but the second, channels: x [N, C, ...], the others [C] or undefined.
// Training takes the batch's statistics and moves the running ones towards them by `momentum` (to
// the unbiased variance); else the running ones are taken.
Tensor batch_norm(const Tensor& x, Tensor running_mean, Tensor running_var,
                  const Tensor& weight = {}, const Tensor& bias = {}, bool training = false,
                  double momentum = 0.1, double eps = 1e-5);
// Over each of `groups` parts of the channels and all that lies behind them: x [N, C, ...], weight
// and bias [C] or undefined.
Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

// --- pooling over the planes of x [N, C, H, W] or [C, H, W] (pool.cpp)
struct MaxPoolOptions {
    std::optional<Size2> stride = {};  // the kernel's size unless said
    Size2 padding = 0;                 // at most half of the kernel; never the largest
    Size2 dilation = 1;
    bool ceil_mode = false;  // rounds the output's size up: the last window may end outside
};
Tensor max_pool2d(const Tensor& x, Size2 kernel, const MaxPoolOptions& options = {});
// With the place h * W + w of each value in its plane (i64), the first of ties.
std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, Size2 kernel,
                                                  const MaxPoolOptions& options = {});
struct AvgPoolOptions {
    std::optional<Size2> stride = {};  // the kernel's size unless said
    Size2 padding = 0;                 // at most half of the kernel
    bool ceil_mode = false;
    bool count_include_pad = true;  // the zeros of the padding count
    std::optional<std::int64_t> divisor_override = {};
};
Tensor avg_pool2d(const Tensor& x, Size2 kernel, const AvgPoolOptions& options = {});
// Cuts the planes into size.h by size.w windows of (almost) equal sizes.
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
    std::optional<Size2> size = {};           // either the new size
    std::optional<Scale2> scale_factor = {};  // or its ratio to the old, rounded down
    Interpolation mode = Interpolation::nearest;
    bool align_corners = false;  // the corners' centres stay in place; bilinear only
};
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

// --- borders and order (pad.cpp)
enum class PadMode : std::uint8_t { constant, reflect, replicate, circular };
// padding is (before, after) of the last dimension, then of the one before it, and so on; negative
// numbers crop.
Tensor pad(const Tensor& x, const Dims& padding, PadMode mode = PadMode::constant,
           Scalar value = 0);
Tensor flip(const Tensor& x, const Dims& dims);  // copies

// --- attention (attention.cpp)
struct AttentionOptions {
    Tensor mask = {};  // boolean (true attends) or floating (added), broadcast to [B, H, Tq, Tk]
    double dropout_p = 0;              // 0 outside training
    bool causal = false;               // query i sees keys j <= i, as in PyTorch
    std::optional<double> scale = {};  // 1 / sqrt(head dim) unless said
};
// q [B, H, Tq, D], k and v [B, G, Tk, D] with H a multiple of G (grouped queries): [B, H, Tq, D].
// Memory is linear in T. A row that may attend to nothing is zero.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});
// Rotates pairs (i, i + D/2) of x [..., T, D] by position * base^(-2i/D), as Llama does; the row t
// has position `offset + t`.
Tensor rotary_embedding(const Tensor& x, double base = 10000, std::int64_t offset = 0);

// --- losses (loss.cpp)
enum class Reduction : std::uint8_t { none, mean, sum };
struct CrossEntropyOptions {
    std::int64_t ignore_index = -100;
    double label_smoothing = 0;
    Reduction reduction = Reduction::mean;  // mean over the targets that are not ignored
};
// logits [N, C], targets [N] of classes; none gives [N].
Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options = {});
// cross_entropy(linear(x, weight), targets) without the [N, C] logits in memory: x [N, K],
// weight [C, K]; mean or sum.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            const CrossEntropyOptions& options = {});
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);

// --- recompute instead of keep (checkpoint.cpp)
// f(inputs), keeping only the inputs: what f's ops would save is computed again when backward asks.
// Random state, autocast and grad mode are restored, so the result and the gradients are the same
// bits. f must be a pure function of its inputs and of parameters: it runs twice, and so would
// running statistics move twice, as in PyTorch.
Tensor checkpoint(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                  const std::vector<Tensor>& inputs);

}  // namespace axle::inline v0
