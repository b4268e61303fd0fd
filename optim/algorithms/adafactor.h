// Adafactor (Shazeer and Stern, 2018), as in torch.optim.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "optim/tensor_optimizer.h"

namespace axle::optim {

struct AdafactorOptions {
    double lr = 1e-2;           // the largest relative step size
    double beta2_decay = -0.8;  // step t keeps 1 - t^beta2_decay of the averages
    // eps.first is the smallest estimate of the root mean square of a gradient element (nullopt:
    // the epsilon of the parameter's dtype). Steps are proportional to the root mean square of the
    // parameter, and eps.second is a lower bound of this root mean square.
    std::pair<std::optional<double>, double> eps = {std::nullopt, 1e-3};
    double d = 1;             // limit of the root mean square of an update
    double weight_decay = 0;  // multiplies the parameter by 1 - lr weight_decay
    bool maximize = false;

    static constexpr const char* kName = "Adafactor";
    // Must be false, because Adafactor rounds parameters to nearest.
    bool stochastic_rounding = false;
    std::vector<NamedOption> named();
    // Throws ValueError unless lr, eps and weight_decay are 0 or more, beta2_decay is 0 or less, d
    // is 1 or more, and stochastic_rounding is false.
    void check(const char* op) const;
};

// The Adafactor optimizer. The saved state of a parameter contains "step", and averages of squared
// gradients: "variance" if the parameter has fewer than two dimensions; otherwise "row_var" and
// "col_var", averages over the last and the second to last dimension, which need less memory.
class Adafactor : public TensorOptimizer<AdafactorOptions> {
  public:
    using TensorOptimizer::TensorOptimizer;

  protected:
    std::span<const char* const> buffer_names() const override;
    std::optional<Shape> buffer_shape(const Tensor& param, std::size_t,
                                      std::size_t buffer) const override;
    void step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                    const Group& group) override;
};

}  // namespace axle::optim
