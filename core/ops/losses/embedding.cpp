#include <cmath>
#include <utility>

#include "core/ops/losses/loss_helpers.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Returns f(x) where x is not 0, and 0 with the gradient 0 elsewhere.
template <class F>
Tensor except_at_zero(const Tensor& x, F f) {
    const Tensor is_zero = eq(x.detach(), 0);
    return masked_fill(f(masked_fill(x, is_zero, 1)), is_zero, 0);
}

// Returns the p-norm of x over the last dimension. The gradient of a zero vector is 0.
Tensor norm_of_last(const Tensor& x, double p) {
    if (p == 0) return sum(to(ne(x, 0), x.dtype()), {-1});
    if (p == 1) return sum(abs(x), {-1});
    if (std::isinf(p)) return max(abs(x), {-1});
    if (p == 2)
        return except_at_zero(sum(square(x), {-1}), [](const Tensor& y) { return sqrt(y); });
    const Tensor powers = except_at_zero(abs(x), [&](const Tensor& y) { return pow(y, p); });
    return except_at_zero(sum(powers, {-1}), [&](const Tensor& y) { return pow(y, 1 / p); });
}

void check_triplet(const char* op, const Tensor& anchor, const Tensor& positive,
                   const Tensor& negative, double margin) {
    check_device(op, {&anchor, &positive, &negative});
    check_floating(op, anchor, "anchor");
    check_floating(op, positive, "positive");
    check_floating(op, negative, "negative");
    if (anchor.dim() == 0 || anchor.dim() != positive.dim() || anchor.dim() != negative.dim())
        throw ShapeError(
            str(op, ": operands must be [..., D] with the same number of dimensions: ", "anchor ",
                anchor.shape(), ", positive ", positive.shape(), ", negative ", negative.shape()));
    broadcast_shapes(op, broadcast_shapes(op, anchor.shape(), positive.shape()), negative.shape());
    if (!(margin > 0)) throw ValueError(str(op, ": margin must be positive: ", margin));
}

// Returns the losses of three distances. swapped is the distance of positive and negative, or
// undefined.
Tensor triplet_losses(const Tensor& positive, const Tensor& negative, const Tensor& swapped,
                      double margin) {
    const Tensor far = swapped.defined() ? minimum(negative, swapped) : negative;
    return relu(margin + positive - far);
}

}  // namespace

Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& target,
                             const CosineEmbeddingLossOptions& options) {
    constexpr const char* kOp = "cosine_embedding_loss";
    const profiler::OpScope scope(kOp);
    check_device(kOp, {&x1, &x2, &target});
    check_floating(kOp, x1, "x1");
    check_floating(kOp, x2, "x2");
    check_compute(kOp, target, "target");
    if (target.dim() > 1 || x1.dim() != target.dim() + 1 || x2.dim() != target.dim() + 1)
        throw ShapeError(str(kOp, ": needs x1 and x2 [N, D] and targets [N], or [D] and []: x1 ",
                             x1.shape(), ", x2 ", x2.shape(), ", target ", target.shape()));
    broadcast_shapes(kOp, x1.shape(), x2.shape());
    const DType common = promote(promote(x1, x2), promote(x1, target));
    const DType wide = wide_dtype(common);
    const Tensor a = to(x1, wide), b = to(x2, wide);
    constexpr double kEpsilon = 1e-12;  // PyTorch adds it to the squared norms
    const Tensor norms = (sum(a * a, {-1}) + kEpsilon) * (sum(b * b, {-1}) + kEpsilon);
    const Tensor cosine = sum(a * b, {-1}) / sqrt(norms);
    const Tensor losses = where(eq(target, 1), 1 - cosine, 0) +
                          where(eq(target, -1), relu(cosine - options.margin), 0);
    return reduce_losses(losses, options.reduction, result_dtype(common));
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossOptions& options) {
    constexpr const char* kOp = "triplet_margin_loss";
    const profiler::OpScope scope(kOp);
    check_triplet(kOp, anchor, positive, negative, options.margin);
    if (!(options.p >= 0)) throw ValueError(str(kOp, ": p must be at least 0: ", options.p));
    const DType common = promote(promote(anchor, positive), promote(anchor, negative));
    const DType wide = wide_dtype(common);
    const Tensor a = to(anchor, wide), p = to(positive, wide), n = to(negative, wide);
    const auto distance = [&](const Tensor& from, const Tensor& to_point) {
        return norm_of_last(from - to_point + options.eps, options.p);
    };
    const Tensor losses = triplet_losses(distance(a, p), distance(a, n),
                                         options.swap ? distance(p, n) : Tensor(), options.margin);
    return reduce_losses(losses, options.reduction, result_dtype(common));
}

Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive,
                                         const Tensor& negative,
                                         const TripletMarginWithDistanceLossOptions& options) {
    constexpr const char* kOp = "triplet_margin_with_distance_loss";
    const profiler::OpScope scope(kOp);
    check_triplet(kOp, anchor, positive, negative, options.margin);
    const auto distance = [&](const Tensor& from, const Tensor& to_point) {
        if (options.distance_function) return options.distance_function(from, to_point);
        constexpr double kEpsilon = 1e-6;  // the default of PyTorch's pairwise_distance
        const DType wide = wide_dtype(promote(from, to_point));
        return norm_of_last(to(from, wide) - to(to_point, wide) + kEpsilon, 2);
    };
    const Tensor near = distance(anchor, positive), far = distance(anchor, negative);
    const Tensor swapped = options.swap ? distance(positive, negative) : Tensor();
    const DType wide = wide_dtype(promote(near, far));
    const Tensor losses =
        triplet_losses(to(near, wide), to(far, wide),
                       swapped.defined() ? to(swapped, wide) : swapped, options.margin);
    const DType common = promote(promote(anchor, positive), promote(anchor, negative));
    return reduce_losses(losses, options.reduction, result_dtype(common));
}

}  // namespace axle
