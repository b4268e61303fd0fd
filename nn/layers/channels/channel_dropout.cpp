#include "nn/layers/channels/channel_dropout.h"

#include <cmath>

namespace axle::nn {
namespace {

double probability(const std::string& who, double p) {
    if (!(p >= 0 && p <= 1)) throw ValueError(str(who, ": p must be in [0, 1]: ", p));
    return p;
}

// Returns ones with the first `kept` sizes of x; the other sizes are 1.
Tensor ones_of(const Tensor& x, int kept) {
    Shape shape = x.shape();
    for (int i = kept; i < shape.size(); ++i) shape[i] = 1;
    return ones(shape, {x.dtype(), x.device()});
}

// Returns x with alpha dropout. `one` is a tensor of ones that broadcasts to x; each of its
// elements stands for the elements of x that are dropped or kept together.
Tensor alpha_dropout(const Tensor& x, double p, const Tensor& one) {
    if (p == 0) return x;
    if (p == 1) return x * 0;
    constexpr double kAlpha = 1.7580993408473766;  // scale * alpha of SELU
    const double a = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
    const Tensor kept = ne(dropout(one, p), 0).to(x.dtype());
    return x * (kept * a) + ((kept - 1) * (kAlpha * a) + kAlpha * a * p);
}

}  // namespace

template <int kSpatial>
ChannelDropout<kSpatial>::ChannelDropout(double p_)
    : p(probability(str("Dropout", kSpatial, "d"), p_)) {}

template <int kSpatial>
Tensor ChannelDropout<kSpatial>::forward(const Tensor& x) {
    const int dims = x.dim();
    if (dims != kSpatial + 2 && dims != kSpatial + 1)
        throw ShapeError(str("Dropout", kSpatial, "d: x must have ", kSpatial + 1, " or ",
                             kSpatial + 2, " dimensions: x is ", x.shape()));
    if (!this->is_training() || p == 0) return x;
    const bool has_samples = dims == kSpatial + 2 || kSpatial == 2;
    return x * dropout(ones_of(x, has_samples ? 2 : 1), p);
}

template class ChannelDropout<1>;
template class ChannelDropout<2>;
template class ChannelDropout<3>;

AlphaDropout::AlphaDropout(double p_) : p(probability("AlphaDropout", p_)) {}
Tensor AlphaDropout::forward(const Tensor& x) {
    return is_training() ? alpha_dropout(x, p, ones_of(x, x.dim())) : x;
}

FeatureAlphaDropout::FeatureAlphaDropout(double p_) : p(probability("FeatureAlphaDropout", p_)) {}
Tensor FeatureAlphaDropout::forward(const Tensor& x) {
    if (x.dim() < 2)
        throw ShapeError(
            str("FeatureAlphaDropout: x must have at least two dimensions: x is ", x.shape()));
    return is_training() ? alpha_dropout(x, p, ones_of(x, 2)) : x;
}

}  // namespace axle::nn
