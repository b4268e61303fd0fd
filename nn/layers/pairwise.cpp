#include "nn/layers/pairwise.h"

#include <cmath>

#include "core/autograd/autocast.h"
#include "core/check.h"
#include "nn/init.h"

namespace axle::nn {

Bilinear::Bilinear(std::int64_t in1, std::int64_t in2, std::int64_t out, BilinearOptions options) {
    if (in1 < 1 || in2 < 1 || out < 1)
        throw ValueError(
            str("Bilinear: sizes must be positive: in1 ", in1, ", in2 ", in2, ", out ", out));
    const double bound = 1 / std::sqrt(static_cast<double>(in1));
    weight = init::parameter({out, in1, in2});
    init::uniform_(weight, -bound, bound);
    if (!options.bias) return;
    bias = init::parameter({out});
    init::uniform_(bias, -bound, bound);
}

Tensor Bilinear::forward(const Tensor& a, const Tensor& b) {
    check_device("Bilinear", {&a, &b});
    const std::int64_t out = weight.size(0), in1 = weight.size(1), in2 = weight.size(2);
    Shape outer = a.shape(), other = b.shape();
    if (a.dim() > 0) outer.erase(a.dim() - 1);
    if (b.dim() > 0) other.erase(b.dim() - 1);
    if (a.dim() == 0 || b.dim() == 0 || outer != other || a.size(-1) != in1 || b.size(-1) != in2)
        throw ShapeError(str("Bilinear: expected [..., ", in1, "] and [..., ", in2, "]: a is ",
                             a.shape(), ", b is ", b.shape()));
    const AutocastGuard off(std::nullopt);  // PyTorch does not compute bilinear in low precision
    const std::int64_t rows = numel(outer);
    const Tensor matrix = weight.transpose(1, 2).reshape({out * in2, in1});
    const Tensor products = linear(a.reshape({rows, in1}), matrix).reshape({rows, out, in2});
    outer.push_back(out);
    const Tensor y = matmul(products, b.reshape({rows, in2, 1})).reshape(outer);
    return bias.defined() ? y + bias : y;
}

Tensor CosineSimilarity::forward(const Tensor& a, const Tensor& b) {
    const Tensor x = autocast_to_f32(a), y = autocast_to_f32(b);
    const Shape shape = broadcast_shapes("CosineSimilarity", x.shape(), y.shape());
    const auto unit = [&](const Tensor& t) {
        const Tensor whole = expand(t, shape);
        return whole / sqrt(clamp(sum(square(whole), {dim}, true), eps * eps, {}));
    };
    return sum(unit(x) * unit(y), {dim});
}

PairwiseDistance::PairwiseDistance(PairwiseDistanceOptions options) : options_(options) {
    if (!(options.p >= 0))
        throw ValueError(str("PairwiseDistance: p must be at least 0: ", options.p));
}

Tensor PairwiseDistance::forward(const Tensor& a, const Tensor& b) {
    const double p = options_.p;
    const Tensor difference = autocast_to_f32(a - b) + options_.eps;
    if (p == 0) return sum(ne(difference, 0).to(difference.dtype()), {-1}, options_.keepdim);
    const Tensor size = abs(difference);
    if (p == 1) return sum(size, {-1}, options_.keepdim);
    if (std::isinf(p)) return max(size, {-1}, options_.keepdim);
    const Tensor total = sum(p == 2 ? square(size) : pow(size, p), {-1}, options_.keepdim);
    // The root has an infinite slope at zero, so zeros are replaced before it and after it.
    const Tensor none = eq(total, 0);
    const Tensor positive = masked_fill(total, none, 1);
    return masked_fill(p == 2 ? sqrt(positive) : pow(positive, 1 / p), none, 0);
}

}  // namespace axle::nn
