#include "nn/layers/norm.h"

#include <algorithm>

#include "core/autograd/autograd.h"
#include "nn/init.h"

namespace axle::nn {
namespace {

void check_size(const std::string& who, const char* name, std::int64_t size) {
    if (size < 1) throw ValueError(str(who, ": ", name, " must be positive: ", size));
}

Tensor parameter_of_ones(const Shape& shape) {
    Tensor weight = init::parameter(shape);
    init::ones_(weight);
    return weight;
}
Tensor parameter_of_zeros(const Shape& shape) {
    Tensor bias = init::parameter(shape);
    init::zeros_(bias);
    return bias;
}

}  // namespace

LayerNorm::LayerNorm(std::int64_t width, LayerNormOptions options)
    : LayerNorm(Shape{width}, options) {}

LayerNorm::LayerNorm(const Shape& sizes, LayerNormOptions options)
    : eps(options.eps), sizes_(sizes) {
    if (sizes.empty()) throw ValueError("LayerNorm: sizes must have at least one element: []");
    for (const std::int64_t size : sizes)
        if (size < 1) throw ValueError(str("LayerNorm: sizes must be positive: ", sizes));
    if (!options.affine) return;
    weight = parameter_of_ones(sizes);
    if (options.bias) bias = parameter_of_zeros(sizes);
}

Tensor LayerNorm::forward(const Tensor& x) {
    auto [own_weight, own_bias] =
        policy == nullptr ? std::pair(weight, bias) : policy->parameters(weight, bias);
    const int outer = x.dim() - sizes_.size();
    if (outer < 0 || !std::equal(sizes_.begin(), sizes_.end(), x.shape().begin() + outer))
        throw ShapeError(
            str("LayerNorm: the last dimensions of x must be ", sizes_, ": x is ", x.shape()));
    if (sizes_.size() == 1) return layer_norm(x, own_weight, own_bias, eps);
    const auto flat = [](const Tensor& t) { return t.defined() ? t.flatten() : t; };
    return layer_norm(x.flatten(outer, -1), flat(own_weight), flat(own_bias), eps)
        .reshape(x.shape());
}

RMSNorm::RMSNorm(std::int64_t width, std::optional<double> eps_) : eps(eps_) {
    check_size("RMSNorm", "width", width);
    weight = parameter_of_ones(width);
}

template <int kSpatial>
BatchNorm<kSpatial>::BatchNorm(std::int64_t channels, BatchNormOptions options)
    : eps(options.eps), momentum(options.momentum) {
    check_size(str("BatchNorm", kSpatial, "d"), "channels", channels);
    if (options.affine) weight = parameter_of_ones(channels), bias = parameter_of_zeros(channels);
    if (!options.track_running_stats) return;
    running_mean = zeros({channels});
    running_var = ones({channels});
    num_batches_tracked = zeros({}, {i64});
}

template <int kSpatial>
Tensor BatchNorm<kSpatial>::forward(const Tensor& x) {
    if (x.dim() != kSpatial + 2 && (kSpatial != 1 || x.dim() != 2))
        throw ShapeError(str("BatchNorm", kSpatial, "d: x must have ", kSpatial == 1 ? "2 or " : "",
                             kSpatial + 2, " dimensions: x is ", x.shape()));
    const bool tracked = running_mean.defined();
    const bool batch_statistics = this->is_training() || !tracked;
    const bool counts = this->is_training() && tracked;
    double factor = momentum.value_or(0);
    if (counts && !momentum) factor = 1 / (num_batches_tracked.item() + 1);
    Tensor y =
        this->is_training() && policy != nullptr
            ? policy->normalize(x, running_mean, running_var, weight, bias, factor, eps)
            : batch_norm(x, running_mean, running_var, weight, bias, batch_statistics, factor, eps);
    if (counts) num_batches_tracked.add_(ones({}, {i64, x.device()}));
    return y;
}

template class BatchNorm<1>;
template class BatchNorm<2>;
template class BatchNorm<3>;

GroupNorm::GroupNorm(std::int64_t groups_, std::int64_t channels, GroupNormOptions options)
    : groups(groups_), eps(options.eps) {
    check_size("GroupNorm", "groups", groups);
    check_size("GroupNorm", "channels", channels);
    if (channels % groups != 0)
        throw ValueError(str("GroupNorm: channels must be a multiple of groups: ", groups,
                             " groups, ", channels, " channels"));
    if (options.affine) weight = parameter_of_ones(channels), bias = parameter_of_zeros(channels);
}

}  // namespace axle::nn
