// Stochastic gradient descent with momentum, like torch.optim.SGD.
#pragma once

#include <vector>

#include "optim/rule_optimizer.h"

namespace axle::optim {

struct SGDOptions {
    double lr = 1e-3;
    double momentum = 0;
    double dampening = 0;
    double weight_decay = 0;  // added to the gradient
    bool nesterov = false;    // needs momentum > 0 and dampening = 0
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    static constexpr const char* kName = "SGD";
    double& momentum_ref() { return momentum; }
    std::vector<NamedOption> named();
    // Throws ValueError unless lr, momentum and weight_decay are 0 or more, and for nesterov
    // without momentum or with dampening.
    void check(const char* op) const;
};

extern template class RuleOptimizer<SGDOptions, kernels::SgdGroup>;

// With momentum, the saved state of a parameter contains "momentum_buffer".
class SGD : public RuleOptimizer<SGDOptions, kernels::SgdGroup> {
  public:
    using RuleOptimizer::RuleOptimizer;
};

}  // namespace axle::optim
