// Variants of Adam, as in torch.optim: Adamax (Kingma and Ba, 2015), NAdam (Dozat, 2016) and RAdam
// (Liu et al., 2020).
#pragma once

#include <array>
#include <vector>

#include "optim/rule_optimizer.h"

namespace axle::optim {

struct AdamaxOptions {
    double lr = 2e-3;
    std::array<double, 2> betas = {0.9, 0.999};
    double eps = 1e-8;
    double weight_decay = 0;  // added to the gradient
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    static constexpr const char* kName = "Adamax";
    double& momentum_ref() { return betas[0]; }
    std::vector<NamedOption> named();
    // Throws ValueError if an option is out of range: betas must be in [0, 1), all other
    // numbers 0 or more.
    void check(const char* op) const;
};

struct NAdamOptions {
    double lr = 2e-3;
    std::array<double, 2> betas = {0.9, 0.999};
    double eps = 1e-8;
    double weight_decay = 0;
    // In step t, beta1 is betas[0] (1 - 0.96^(t momentum_decay) / 2).
    double momentum_decay = 4e-3;
    bool decoupled_weight_decay = false;  // false: weight decay is added to the gradient
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    static constexpr const char* kName = "NAdam";
    double& momentum_ref() { return betas[0]; }
    std::vector<NamedOption> named();
    // Throws ValueError if an option is out of range: betas must be in [0, 1), all other
    // numbers 0 or more.
    void check(const char* op) const;
};

struct RAdamOptions {
    double lr = 1e-3;
    std::array<double, 2> betas = {0.9, 0.999};
    double eps = 1e-8;
    double weight_decay = 0;
    bool decoupled_weight_decay = false;  // false: weight decay is added to the gradient
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    static constexpr const char* kName = "RAdam";
    double& momentum_ref() { return betas[0]; }
    std::vector<NamedOption> named();
    // Throws ValueError if an option is out of range: betas must be in [0, 1), all other
    // numbers 0 or more.
    void check(const char* op) const;
};

extern template class RuleOptimizer<AdamaxOptions, kernels::AdamaxGroup>;
extern template class RuleOptimizer<NAdamOptions, kernels::NAdamGroup>;
extern template class RuleOptimizer<RAdamOptions, kernels::RAdamGroup>;

// The saved state of a parameter contains "step", "exp_avg" and "exp_inf".
class Adamax : public RuleOptimizer<AdamaxOptions, kernels::AdamaxGroup> {
  public:
    using RuleOptimizer::RuleOptimizer;
};

// The saved state of a parameter contains "step", "exp_avg", "exp_avg_sq" and "mu_product", a
// number.
class NAdam : public RuleOptimizer<NAdamOptions, kernels::NAdamGroup> {
  public:
    using RuleOptimizer::RuleOptimizer;
};

// The saved state of a parameter contains "step", "exp_avg" and "exp_avg_sq".
class RAdam : public RuleOptimizer<RAdamOptions, kernels::RAdamGroup> {
  public:
    using RuleOptimizer::RuleOptimizer;
};

}  // namespace axle::optim
