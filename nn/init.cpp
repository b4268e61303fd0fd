#include "nn/init.h"

#include <algorithm>
#include <cmath>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "nn/deferred_storage.h"

namespace axle::nn::init {
namespace {

thread_local int empty_weights = 0, deferred_weights = 0;

// Returns fan_in, the product of all sizes except the first, or fan_out, the product of all sizes
// except the second. Throws ShapeError if t has fewer than two dimensions.
double fan_of(const char* op, const Tensor& t, Fan fan) {
    if (t.dim() < 2)
        throw ShapeError(
            str(op, ": the tensor must have at least two dimensions: it is ", t.shape()));
    return static_cast<double>(t.numel()) / static_cast<double>(t.size(fan == Fan::in ? 0 : 1));
}

}  // namespace

void zeros_(Tensor& t) { constant_(t, 0); }
void ones_(Tensor& t) { constant_(t, 1); }

void constant_(Tensor& t, double value) {
    check_device("constant_", {&t});
    const NoGrad no_grad;
    if (!DeferredStorage::record(t, Fill::constant, value)) t.fill_(value);
}
void uniform_(Tensor& t, double low, double high) {
    check_device("uniform_", {&t});
    const NoGrad no_grad;
    if (!DeferredStorage::record(t, Fill::uniform, low, high)) t.uniform_(low, high);
}
void normal_(Tensor& t, double mean, double std) {
    check_device("normal_", {&t});
    const NoGrad no_grad;
    if (!DeferredStorage::record(t, Fill::normal, mean, std)) t.normal_(mean, std);
}

void trunc_normal_(Tensor& t, double mean, double std, double low, double high) {
    check_device("trunc_normal_", {&t});
    if (!(low <= high))
        throw ValueError(str("trunc_normal_: low must be at most high: [", low, ", ", high, "]"));
    if (!(std >= 0)) throw ValueError(str("trunc_normal_: std must be at least 0: ", std));
    if (t.numel() == 0 || t.device().is_meta()) return;
    if (std == 0) return constant_(t, std::clamp(mean, low, high));
    const NoGrad no_grad;
    // If u is uniform between erf(l) and erf(h), erfinv(u) is normal with variance 1/2, truncated
    // to [l, h].
    const double scale = std * std::sqrt(2.0);
    const DType dtype = t.dtype() == f64 ? f64 : f32;
    Tensor u = empty(t.shape(), {dtype, t.device()});
    u.uniform_(std::erf((low - mean) / scale), std::erf((high - mean) / scale));
    t.copy_(clamp(erfinv(u) * scale + mean, low, high));
}

double calculate_gain(Nonlinearity nonlinearity, double a) {
    switch (nonlinearity) {
        case Nonlinearity::tanh:
            return 5.0 / 3;
        case Nonlinearity::relu:
            return std::sqrt(2.0);
        case Nonlinearity::leaky_relu:
            return std::sqrt(2 / (1 + a * a));
        case Nonlinearity::selu:
            return 0.75;
        default:
            return 1;
    }
}

void kaiming_uniform_(Tensor& t, double a, Fan fan, Nonlinearity nonlinearity) {
    check_device("kaiming_uniform_", {&t});
    if (t.numel() == 0) return;
    const double bound =
        calculate_gain(nonlinearity, a) * std::sqrt(3.0 / fan_of("kaiming_uniform_", t, fan));
    uniform_(t, -bound, bound);
}

void kaiming_normal_(Tensor& t, double a, Fan fan, Nonlinearity nonlinearity) {
    check_device("kaiming_normal_", {&t});
    if (t.numel() == 0) return;
    normal_(t, 0, calculate_gain(nonlinearity, a) / std::sqrt(fan_of("kaiming_normal_", t, fan)));
}

void xavier_uniform_(Tensor& t, double gain) {
    check_device("xavier_uniform_", {&t});
    if (t.numel() == 0) return;
    constexpr const char* kOp = "xavier_uniform_";
    const double bound =
        gain * std::sqrt(6.0 / (fan_of(kOp, t, Fan::in) + fan_of(kOp, t, Fan::out)));
    uniform_(t, -bound, bound);
}

void xavier_normal_(Tensor& t, double gain) {
    check_device("xavier_normal_", {&t});
    if (t.numel() == 0) return;
    constexpr const char* kOp = "xavier_normal_";
    normal_(t, 0, gain * std::sqrt(2.0 / (fan_of(kOp, t, Fan::in) + fan_of(kOp, t, Fan::out))));
}

Tensor parameter(const Shape& shape) {
    const bool has_memory = empty_weights == 0 && deferred_weights == 0;
    const Device device = has_memory ? Device::cpu() : Device::meta();
    Tensor t = Tensor::empty(shape, {.device = device, .requires_grad = true});
    if (!has_memory && empty_weights == 0) t.impl()->storage = DeferredStorage::create(t.numel());
    return t;
}

EmptyWeights::EmptyWeights() { ++empty_weights; }
EmptyWeights::~EmptyWeights() { --empty_weights; }
DeferredWeights::DeferredWeights() { ++deferred_weights; }
DeferredWeights::~DeferredWeights() { --deferred_weights; }

bool defers_weights() { return deferred_weights > 0; }

bool is_deferred(const Tensor& t) {
    const DeferredStorage* const deferred = DeferredStorage::of(t);
    return deferred != nullptr && deferred->is_whole(t);
}

void write_initial_values(const Tensor& parameter, Tensor to) {
    const NoGrad no_grad;
    const bool is_direct = to.device().is_cpu();
    Tensor values = is_direct ? to : Tensor::empty({to.numel()});
    DeferredStorage::of(parameter)->write(values);
    if (!is_direct) to.copy_(values.view(to.shape()));
}

}  // namespace axle::nn::init
