#include "nn/layers/channels/channel_norms.h"

#include "core/autograd/autograd.h"
#include "nn/init.h"

namespace axle::nn {

template <int kSpatial>
InstanceNorm<kSpatial>::InstanceNorm(std::int64_t channels, InstanceNormOptions options)
    : eps(options.eps), momentum(options.momentum), channels_(channels) {
    if (channels < 1)
        throw ValueError(str("InstanceNorm", kSpatial, "d: channels must be positive: ", channels));
    if (options.affine) {
        weight = init::parameter({channels}), bias = init::parameter({channels});
        init::ones_(weight), init::zeros_(bias);
    }
    if (!options.track_running_stats) return;
    running_mean = zeros({channels});
    running_var = ones({channels});
    num_batches_tracked = zeros({}, {i64});
}

// Updates the running statistics with a batch [N, channels, ...], unless the momentum is 0 or not
// set.
template <int kSpatial>
void InstanceNorm<kSpatial>::update(const Tensor& x) {
    const double factor = momentum.value_or(0);
    if (factor == 0) return;
    const NoGrad no_grad;
    const Tensor rows = x.detach().flatten(2, -1);
    const auto blend = [&](Tensor& running, const Tensor& of_samples) {
        const Tensor latest = mean(of_samples, {0}).to(running.dtype());
        running.mul_(1 - factor).add_(latest, factor);
    };
    blend(running_mean, mean(rows, {2}));
    blend(running_var, var(rows, {2}));
}

template <int kSpatial>
Tensor InstanceNorm<kSpatial>::forward(const Tensor& x) {
    const bool unbatched = x.dim() == kSpatial + 1;
    if ((x.dim() != kSpatial + 2 && !unbatched) || x.size(unbatched ? 0 : 1) != channels_)
        throw ShapeError(str("InstanceNorm", kSpatial, "d: x must be [N, ", channels_,
                             ", ...] with ", kSpatial, " spatial dimensions, or [", channels_,
                             ", ...]: x is ", x.shape()));
    const Tensor batch = unbatched ? x.unsqueeze(0) : x;
    const bool tracked = running_mean.defined();
    Tensor y;
    if (this->is_training() || !tracked) {
        std::int64_t elements = 1;
        for (int d = 2; d < batch.dim(); ++d) elements *= batch.shape()[d];
        if (this->is_training() && elements == 1)
            throw ShapeError(str("InstanceNorm", kSpatial,
                                 "d: expected more than 1 element per channel in training mode: x "
                                 "is ",
                                 x.shape()));
        y = group_norm(batch, channels_, weight, bias, eps);
        if (this->is_training() && tracked) update(batch);
    } else {
        y = batch_norm(batch, running_mean, running_var, weight, bias, false, 0, eps);
    }
    return unbatched ? y.squeeze(0) : y;
}

template class InstanceNorm<1>;
template class InstanceNorm<2>;
template class InstanceNorm<3>;

LocalResponseNorm::LocalResponseNorm(std::int64_t size_, LocalResponseNormOptions options_)
    : size(size_), options(options_) {
    if (size < 1) throw ValueError(str("LocalResponseNorm: size must be positive: ", size));
}

Tensor LocalResponseNorm::forward(const Tensor& x) { return local_response_norm(x, size, options); }

}  // namespace axle::nn
