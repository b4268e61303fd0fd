// Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019), as in torch.optim.
#pragma once

#include <array>
#include <vector>

#include "optim/rule_optimizer.h"

namespace axle::optim {

// Options of Adam, which adds weight decay to the gradient.
struct AdamOptions {
    double lr = 1e-3;
    std::array<double, 2> betas = {0.9, 0.999};
    double eps = 1e-8;
    double weight_decay = 0;
    bool amsgrad = false;  // divides by the root of the largest second moment so far
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    static constexpr const char* kName = "Adam";
    static constexpr bool kDecoupledDecay = false;
    double& momentum_ref() { return betas[0]; }
    std::vector<NamedOption> named();
    // Throws ValueError unless betas are in [0, 1) and all other numbers are 0 or more.
    void check(const char* op) const;
};

// Options of AdamW, which applies weight decay directly to the parameter.
struct AdamWOptions {
    double lr = 1e-3;
    std::array<double, 2> betas = {0.9, 0.999};
    double eps = 1e-8;
    double weight_decay = 1e-2;
    bool amsgrad = false;  // divides by the root of the largest second moment so far
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    static constexpr const char* kName = "AdamW";
    static constexpr bool kDecoupledDecay = true;
    double& momentum_ref() { return betas[0]; }
    std::vector<NamedOption> named();
    // Throws ValueError unless betas are in [0, 1) and all other numbers are 0 or more.
    void check(const char* op) const;
};

extern template class RuleOptimizer<AdamOptions, kernels::AdamGroup>;
extern template class RuleOptimizer<AdamWOptions, kernels::AdamGroup>;

// The saved state of a parameter contains "step", "exp_avg" and "exp_avg_sq"; with amsgrad, also
// "max_exp_avg_sq".
class Adam : public RuleOptimizer<AdamOptions, kernels::AdamGroup> {
  public:
    using RuleOptimizer::RuleOptimizer;
};

// The saved state is the same as in Adam.
class AdamW : public RuleOptimizer<AdamWOptions, kernels::AdamGroup> {
  public:
    using RuleOptimizer::RuleOptimizer;
};

}  // namespace axle::optim
