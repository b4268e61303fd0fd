// LAMB (You et al., 2020, arXiv:1904.00962) and LARS (You et al., 2017, arXiv:1708.03888):
// optimizers for large batches. The learning rate of each parameter is multiplied by the ratio of
// the norm of the parameter to the norm of its update (LAMB) or of its gradient (LARS).
#pragma once

#include <array>
#include <span>
#include <vector>

#include "optim/tensor_optimizer.h"

namespace axle::optim {

struct LAMBOptions {
    double lr = 1e-3;
    std::array<double, 2> betas = {0.9, 0.999};
    double eps = 1e-6;
    double weight_decay = 0;  // times the parameter, added to the update of Adam
    bool maximize = false;
    // Must be false, because LAMB rounds parameters to nearest.
    bool stochastic_rounding = false;

    static constexpr const char* kName = "LAMB";
    double& momentum_ref() { return betas[0]; }
    std::vector<NamedOption> named();
    // Throws ValueError unless betas are in [0, 1), all other numbers are 0 or more, and
    // stochastic_rounding is false.
    void check(const char* op) const;
};

struct LARSOptions {
    double lr = 1e-3;
    double momentum = 0.9;
    double weight_decay = 0;          // times the parameter, added to the gradient
    double trust_coefficient = 1e-3;  // the factor eta of the local rate
    double eps = 1e-8;                // added to the denominator of the local rate
    bool maximize = false;
    // Must be false, because LARS rounds parameters to nearest.
    bool stochastic_rounding = false;

    static constexpr const char* kName = "LARS";
    double& momentum_ref() { return momentum; }
    std::vector<NamedOption> named();
    // Throws ValueError unless all numbers are 0 or more and stochastic_rounding is false.
    void check(const char* op) const;
};

// LAMB: x = x - lr |x| / |u| u, where u is the update of Adam, with bias correction, plus
// weight_decay x. The factor |x| / |u| is 1 if a norm is 0. The saved state of a parameter contains
// "step", "exp_avg" and "exp_avg_sq".
class LAMB : public TensorOptimizer<LAMBOptions> {
  public:
    using TensorOptimizer::TensorOptimizer;

  protected:
    std::span<const char* const> buffer_names() const override;
    void step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                    const Group& group) override;
};

// LARS: v = momentum v + lr r (g + weight_decay x) and x = x - v. The local rate r is
// trust_coefficient |x| / (|g| + weight_decay |x| + eps), or 1 if a norm is 0. The saved state of a
// parameter contains "momentum_buffer".
class LARS : public TensorOptimizer<LARSOptions> {
  public:
    using TensorOptimizer::TensorOptimizer;

  protected:
    std::span<const char* const> buffer_names() const override;
    bool saves_step() const override { return false; }
    void step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                    const Group& group) override;
};

}  // namespace axle::optim
