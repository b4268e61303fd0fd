// Adagrad (Duchi et al., 2011), RMSprop (Hinton, 2012) and Adadelta (Zeiler, 2012), as in
// torch.optim: they divide gradients by the root of a sum or average of their squares.
#pragma once

#include <vector>

#include "optim/rule_optimizer.h"

namespace axle::optim {

struct AdagradOptions {
    double lr = 1e-2;
    double lr_decay = 0;      // step t uses the rate lr / (1 + (t - 1) lr_decay)
    double weight_decay = 0;  // added to the gradient
    double initial_accumulator_value = 0;
    double eps = 1e-10;
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    static constexpr const char* kName = "Adagrad";
    std::vector<NamedOption> named();
    // Throws ValueError if an option is out of range: all numbers must be 0 or more.
    void check(const char* op) const;
};

struct RMSpropOptions {
    double lr = 1e-2;
    double alpha = 0.99;  // decay of the averages
    double eps = 1e-8;
    double weight_decay = 0;  // added to the gradient
    double momentum = 0;
    bool centered = false;  // whether to subtract the squared average gradient from square_avg
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    static constexpr const char* kName = "RMSprop";
    double& momentum_ref() { return momentum; }
    std::vector<NamedOption> named();
    // Throws ValueError if an option is out of range: all numbers must be 0 or more.
    void check(const char* op) const;
};

struct AdadeltaOptions {
    double lr = 1;
    double rho = 0.9;  // decay of the averages
    double eps = 1e-6;
    double weight_decay = 0;  // added to the gradient
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    static constexpr const char* kName = "Adadelta";
    std::vector<NamedOption> named();
    // Throws ValueError if an option is out of range: rho must be in [0, 1], all other numbers 0 or
    // more.
    void check(const char* op) const;
};

extern template class RuleOptimizer<AdagradOptions, kernels::AdagradGroup>;
extern template class RuleOptimizer<RMSpropOptions, kernels::RmsPropGroup>;
extern template class RuleOptimizer<AdadeltaOptions, kernels::AdadeltaGroup>;

// The saved state of a parameter contains "step" and "sum". Unlike in PyTorch, the state is created
// by the first step of the parameter.
class Adagrad : public RuleOptimizer<AdagradOptions, kernels::AdagradGroup> {
  public:
    using RuleOptimizer::RuleOptimizer;
};

// The saved state of a parameter contains "step" and "square_avg"; with momentum, also
// "momentum_buffer", and if centered, "grad_avg".
class RMSprop : public RuleOptimizer<RMSpropOptions, kernels::RmsPropGroup> {
  public:
    using RuleOptimizer::RuleOptimizer;
};

// The saved state of a parameter contains "step", "square_avg" and "acc_delta".
class Adadelta : public RuleOptimizer<AdadeltaOptions, kernels::AdadeltaGroup> {
  public:
    using RuleOptimizer::RuleOptimizer;
};

}  // namespace axle::optim
