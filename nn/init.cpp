#include "nn/init.h"

#include <cmath>

#include "core/autograd.h"

namespace axle::inline v0::nn::init {
namespace {

double fan_in(const Tensor& t) {
    if (t.dim() < 2) throw ShapeError(str("init: needs at least two dimensions: ", t.shape()));
    return static_cast<double>(t.numel()) /
           static_cast<double>(std::max<std::int64_t>(t.size(0), 1));
}

}  // namespace

void zeros_(Tensor& t) { constant_(t, 0); }
void ones_(Tensor& t) { constant_(t, 1); }

void constant_(Tensor& t, double value) {
    const NoGrad no_grad;
    t.fill_(value);
}
void uniform_(Tensor& t, double low, double high) {
    const NoGrad no_grad;
    t.uniform_(low, high);
}
void normal_(Tensor& t, double mean, double std) {
    const NoGrad no_grad;
    t.normal_(mean, std);
}

void kaiming_uniform_(Tensor& t, double a) {
    if (t.numel() == 0) return;
    const double bound = std::sqrt(6.0 / ((1 + a * a) * fan_in(t)));
    uniform_(t, -bound, bound);
}

void xavier_uniform_(Tensor& t, double gain) {
    if (t.numel() == 0) return;
    const double fan_out =
        fan_in(t) / static_cast<double>(t.size(1)) * static_cast<double>(t.size(0));
    const double bound = gain * std::sqrt(6.0 / (fan_in(t) + fan_out));
    uniform_(t, -bound, bound);
}

Tensor parameter(const Shape& shape) { return Tensor::empty(shape, {.requires_grad = true}); }

}  // namespace axle::inline v0::nn::init
