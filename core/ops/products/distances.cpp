#include <cmath>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/reductions/reduced.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Returns the operand of a distance, converted to f32 if it is 16-bit and autocast is on. Throws
// DTypeError unless it is floating.
Tensor floating_operand(const char* op, const Tensor& x, const char* name) {
    check_floating(op, x, name);
    return autocast_to_f32(x);
}

// Returns the square root of |a|^2 + |b|^2 - 2 a b. The sum is clamped, because rounding can make
// it negative.
Tensor euclidean_by_product(const Tensor& a, const Tensor& b) {
    const Tensor squares =
        add(sum(square(a), -1, true), transpose(sum(square(b), -1, true), -2, -1));
    const Tensor distance = add(squares, mul(matmul(a, transpose(b, -2, -1)), -2));
    return root_of_squares(clamp(distance, 0, {}));
}

}  // namespace

Tensor cdist(const Tensor& first, const Tensor& second, double p) {
    const profiler::OpScope scope("cdist");
    check_device("cdist", {&first, &second});
    Tensor a = floating_operand("cdist", first, "a"), b = floating_operand("cdist", second, "b");
    check_same_dtype("cdist", a, b);
    if (a.dim() < 2 || b.dim() < 2 || a.size(-1) != b.size(-1))
        throw ShapeError(str("cdist: the operands must be [..., n, k] and [..., m, k]: a is ",
                             a.shape(), ", b is ", b.shape()));
    if (!(p >= 0)) throw ValueError(str("cdist: p must be at least 0: ", p));
    const DType dtype = a.dtype();
    const AutocastGuard off(std::nullopt);
    a = widened(a), b = widened(b);
    const Tensor left = unsqueeze(a, -2), right = unsqueeze(b, -3);
    broadcast_shapes("cdist", left.shape(), right.shape());
    constexpr std::int64_t kSmall = 25;  // PyTorch's limit
    Tensor y;
    if (a.size(-1) == 0)
        y = sum(sub(left, right), -1);
    else if (p == 2 && (a.size(-2) > kSmall || b.size(-2) > kSmall))
        y = euclidean_by_product(a, b);
    else
        y = vector_norm(sub(left, right), p, -1);
    return to(y, dtype);
}

Tensor pairwise_distance(const Tensor& first, const Tensor& second, double p, double eps,
                         bool keepdim) {
    const profiler::OpScope scope("pairwise_distance");
    check_device("pairwise_distance", {&first, &second});
    check_floating("pairwise_distance", first, "a");
    check_floating("pairwise_distance", second, "b");
    broadcast_shapes("pairwise_distance", first.shape(), second.shape());
    return vector_norm(add(sub(first, second), eps), p, -1, keepdim);
}

// The norms are limited without a gradient, as in PyTorch: the gradient of a norm does not depend
// on whether it is above eps.
Tensor cosine_similarity(const Tensor& first, const Tensor& second, std::int64_t dim, double eps) {
    const profiler::OpScope scope("cosine_similarity");
    check_device("cosine_similarity", {&first, &second});
    const Tensor a = floating_operand("cosine_similarity", first, "a");
    const Tensor b = floating_operand("cosine_similarity", second, "b");
    const Shape shape = broadcast_shapes("cosine_similarity", a.shape(), b.shape());
    const int d = wrap_dim("cosine_similarity", dim, shape.size());
    const DType dtype = promote(a, b);
    const auto direction = [&](const Tensor& x) {
        const Tensor wide = widened(expand(to(x, dtype), shape));
        const Tensor length = vector_norm(wide, 2, d, true), values = length.detach();
        return div(wide, add(length, sub(clamp(values, eps, {}), values)));
    };
    return to(sum(mul(direction(a), direction(b)), d), dtype);
}

Tensor normalize(const Tensor& input, double p, std::int64_t dim, double eps) {
    const profiler::OpScope scope("normalize");
    check_device("normalize", {&input});
    const Tensor original = floating_operand("normalize", input, "x"), x = widened(original);
    wrap_dim("normalize", dim, x.dim());
    return to(div(x, clamp(vector_norm(x, p, dim, true), eps, {})), original.dtype());
}

}  // namespace axle
