// Lion (Chen et al., 2023, arXiv:2302.06675), and Rprop (Riedmiller and Braun, 1993) and ASGD
// (Polyak and Juditsky, 1992) as in torch.optim. Lion uses only the sign of its update, and Rprop
// only the signs of the gradients.
#pragma once

#include <array>
#include <vector>

#include "optim/rule_optimizer.h"

namespace axle::optim {

struct LionOptions {
    double lr = 1e-4;
    std::array<double, 2> betas = {0.9, 0.99};  // for the update, and for the average of gradients
    double weight_decay = 0;                    // multiplies the parameter by 1 - lr weight_decay
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    static constexpr const char* kName = "Lion";
    double& momentum_ref() { return betas[0]; }
    std::vector<NamedOption> named();
    // Throws ValueError if an option is out of range: betas must be in [0, 1), all other
    // numbers 0 or more.
    void check(const char* op) const;
};

struct RpropOptions {
    double lr = 1e-2;                               // the first step size of each element
    std::array<double, 2> etas = {0.5, 1.2};        // factors of the step sizes
    std::array<double, 2> step_sizes = {1e-6, 50};  // the smallest and the largest step size
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    static constexpr const char* kName = "Rprop";
    std::vector<NamedOption> named();
    // Throws ValueError unless lr is 0 or more and 0 < etas[0] < 1 < etas[1].
    void check(const char* op) const;
};

struct ASGDOptions {
    double lr = 1e-2;
    double lambd = 1e-4;      // decay of the parameter
    double alpha = 0.75;      // power of the decay of the rate
    double t0 = 1e6;          // the step after which averaging begins
    double weight_decay = 0;  // added to the gradient
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    static constexpr const char* kName = "ASGD";
    std::vector<NamedOption> named();
    // Throws ValueError if an option is out of range: all numbers except t0 must be 0 or more.
    void check(const char* op) const;
};

extern template class RuleOptimizer<LionOptions, kernels::LionGroup>;
extern template class RuleOptimizer<RpropOptions, kernels::RpropGroup>;
extern template class RuleOptimizer<ASGDOptions, kernels::AsgdGroup>;

// The saved state of a parameter contains "exp_avg".
class Lion : public RuleOptimizer<LionOptions, kernels::LionGroup> {
  public:
    using RuleOptimizer::RuleOptimizer;
};

// The saved state of a parameter contains "step", "prev" and "step_size".
class Rprop : public RuleOptimizer<RpropOptions, kernels::RpropGroup> {
  public:
    using RuleOptimizer::RuleOptimizer;
};

// The saved state of a parameter contains "step", the average of the parameter as "ax", and the
// numbers "eta" and "mu".
class ASGD : public RuleOptimizer<ASGDOptions, kernels::AsgdGroup> {
  public:
    using RuleOptimizer::RuleOptimizer;
};

}  // namespace axle::optim
