#include "core/distributions/distribution.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "core/autograd/autograd.h"
#include "core/check.h"

namespace axle::distributions {

std::vector<Tensor> broadcast_parameters(const char* distribution,
                                         const std::vector<Parameter>& parameters) {
    TensorOptions options;
    const Tensor* first = nullptr;
    for (const Parameter& p : parameters)
        if (p.tensor().defined()) {
            if (first == nullptr) first = &p.tensor();
            check_device(distribution, {first, &p.tensor()});
            if (!is_floating(p.tensor().dtype()))
                check_floating(distribution, p.tensor(),
                               str("parameter ", &p - parameters.data()).c_str());
            options = {.dtype = p.tensor().dtype(), .device = p.tensor().device()};
        }
    std::vector<Tensor> tensors;
    Shape shape;
    for (const Parameter& p : parameters) {
        tensors.push_back(p.tensor().defined() ? p.tensor() : full({}, p.number(), options));
        shape = broadcast_shapes(distribution, shape, tensors.back().shape());
    }
    for (Tensor& t : tensors) t = expand(t, shape);
    return tensors;
}

void check_condition(const char* distribution, const char* name, const char* condition,
                     const Tensor& is_fulfilled, const Tensor& values) {
    if (!is_fulfilled.device().is_cpu() || all(is_fulfilled).item<bool>()) return;
    const std::vector<double> flags = is_fulfilled.to_vector();
    const auto position = std::find(flags.begin(), flags.end(), 0.0) - flags.begin();
    std::string given = "the condition fails";
    if (values.defined() && values.shape() == is_fulfilled.shape())
        given = str(values.to_vector()[static_cast<std::size_t>(position)]);
    throw ValueError(str(distribution, ": ", name, " must be ", condition, ": ", given,
                         " at element ", position, " of shape ", is_fulfilled.shape()));
}

void check_not_nan(const char* distribution, const char* name, const Tensor& x) {
    check_condition(distribution, name, "a number (not NaN)", eq(x.detach(), x.detach()), x);
}

Tensor Distribution::sample(const Shape& sample_shape) const {
    const NoGrad no_grad;
    return draw(sample_shape).detach();
}

Tensor Distribution::rsample(const Shape&) const {
    throw UsageError(
        str(name_, ": rsample is not supported, because samples are discrete; use sample()"));
}

Tensor Distribution::draw(const Shape& sample_shape) const { return rsample(sample_shape); }

Shape Distribution::sample_size(const Shape& sample_shape) const {
    Shape shape = sample_shape;
    for (const std::int64_t n : batch_shape_) shape.push_back(n);
    for (const std::int64_t n : event_shape_) shape.push_back(n);
    return shape;
}

void Distribution::check_value(const Tensor& value, const char* condition,
                               const Tensor& is_fulfilled) const {
    broadcast_shapes(name_, value.shape(), sample_size({}));
    if (validate_args_) check_condition(name_, "the value", condition, is_fulfilled, value);
}

}  // namespace axle::distributions
