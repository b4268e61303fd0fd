// Prodigy (Mishchenko and Defazio, 2023, arXiv:2306.06101), with the results of the Python package
// prodigyopt 1.1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "optim/tensor_optimizer.h"

namespace axle::optim {

struct ProdigyOptions {
    double lr = 1;  // multiplies the estimated rate d; schedules change it
    std::array<double, 2> betas = {0.9, 0.999};
    std::optional<double> beta3 = std::nullopt;  // decay of the estimate; nullopt: sqrt(betas[1])
    double eps = 1e-8;
    double weight_decay = 0;
    bool decouple = true;  // whether to apply weight decay as in AdamW instead of Adam
    bool use_bias_correction = false;
    bool safeguard_warmup = false;  // removes lr from the denominator of the estimate
    double d0 = 1e-6;               // the first d
    double d_coef = 1;              // multiplies the estimate
    // The largest factor of d in a step, except that the first estimate above d0 sets d.
    double growth_rate = std::numeric_limits<double>::infinity();
    std::int64_t slice_p = 1;  // the estimate uses every slice_p-th element of a parameter
    // Must be false, because Prodigy rounds parameters to nearest.
    bool stochastic_rounding = false;

    // Values that steps change and state dicts contain. Steps use the values of the first group.
    // nullopt means d0, before the first step.
    std::optional<double> d = std::nullopt, d_max = std::nullopt;
    double d_numerator = 0;
    std::int64_t k = 0;  // number of steps so far

    static constexpr const char* kName = "Prodigy";
    double& momentum_ref() { return betas[0]; }
    std::vector<NamedOption> named();
    // Throws ValueError unless eps, d0 and slice_p are positive, betas are in [0, 1), lr and
    // weight_decay are 0 or more, and stochastic_rounding is false.
    void check(const char* op) const;
};

// Adam with the learning rate d * lr, where d is an estimate of the distance to the solution. Steps
// take betas, beta3, use_bias_correction, d_coef, growth_rate and decouple from the first group. A
// step reads two sums on the host, and throws ValueError if the rates of two groups differ and
// neither is 0. The saved state of a parameter contains "step", "s", "p0", "exp_avg" (unless
// betas[0] is 0) and "exp_avg_sq".
class Prodigy : public TensorOptimizer<ProdigyOptions> {
  public:
    using TensorOptimizer::TensorOptimizer;

  protected:
    std::vector<NamedOption> options(std::size_t group) override;
    std::span<const char* const> buffer_names() const override;
    bool needs_buffer(std::size_t group, std::size_t buffer) const override;
    std::optional<Shape> buffer_shape(const Tensor& param, std::size_t group,
                                      std::size_t buffer) const override;
    void fill_buffer(Tensor& buffer, const Tensor& param, std::size_t group,
                     std::size_t index) const override;
    void update(Device device, std::span<const kernels::Slot> slots,
                const kernels::StepScalars* scalars) override;
    void step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                    const Group& group) override;

  private:
    // The sums over all parameters from which a step estimates d.
    struct Sums {
        Tensor numerator, denominator;  // f64, 0-d; undefined without parameters
    };
    double rate() const;  // the rate of all groups whose rate is not 0
    Sums average(std::span<const kernels::Slot> slots, const std::vector<Tensor>& params,
                 const TensorStep& step, double d, double dlr) const;
    double dlr_ = 0;  // the rate of the current step
};

}  // namespace axle::optim
