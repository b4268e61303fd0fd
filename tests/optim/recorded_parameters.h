// The parameters and gradients of the recordings in tests/golden/optim.json.
#pragma once

#include <cmath>
#include <vector>

#include "core/ops.h"

namespace axle::tests {

using Params = std::vector<Tensor>;

// Returns the parameters of the recording: nine values in two tensors.
inline Params parameters(DType dtype = f64) {
    std::vector<double> values;
    values.reserve(9);
    for (int i = 0; i < 9; ++i) values.push_back(std::cos(0.7 * i));
    const TensorOptions options = {.dtype = dtype, .requires_grad = true};
    return {tensor(std::vector<double>(values.begin(), values.begin() + 6), {3, 2}, options),
            tensor(std::vector<double>(values.begin() + 6, values.end()), {3}, options)};
}

// Sets the gradients of step `t` (from 1), which depend on the values of the parameters.
inline void set_gradients(const Params& params, int t) {
    int i = 0;
    for (const Tensor& param : params) {
        std::vector<double> grad;
        for (const double p : param.to_vector()) {
            grad.push_back((0.5 + 0.1 * i) * p + 0.5 * std::sin(0.3 * t + i));
            ++i;
        }
        param.set_grad(tensor(grad, param.shape(), {.dtype = param.dtype()}));
    }
}

inline std::vector<double> values(const Params& params) {
    std::vector<double> all;
    for (const Tensor& param : params)
        for (const double x : param.to_vector()) all.push_back(x);
    return all;
}

}  // namespace axle::tests
