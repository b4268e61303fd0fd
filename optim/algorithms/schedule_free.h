// Schedule-free AdamW and SGD (Defazio et al., 2024, arXiv:2405.15682), with the results of the
// Python package schedulefree 1.4.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "optim/tensor_optimizer.h"

namespace axle::optim {

struct AdamWScheduleFreeOptions {
    double lr = 2.5e-3;
    std::array<double, 2> betas = {0.9, 0.999};
    double eps = 1e-8;
    double weight_decay = 0;        // times the parameter, added to the normalized gradient
    std::int64_t warmup_steps = 0;  // steps in which the rate grows linearly to lr
    double r = 0;                   // step k has the weight k^r in the average
    double weight_lr_power = 2;     // power of the largest rate so far in the weight of a step

    // Values that step(), train() and eval() change and that state dicts contain.
    std::int64_t k = 0;  // number of steps so far
    double weight_sum = 0, lr_max = -1, scheduled_lr = 0;
    bool train_mode = true;
    // Must be false, because the optimizer rounds parameters to nearest.
    bool stochastic_rounding = false;

    static constexpr const char* kName = "AdamWScheduleFree";
    double momentum() const { return betas[0]; }
    std::vector<NamedOption> named();
    // Throws ValueError unless betas[0] is in (0, 1), betas[1] is in [0, 1), lr, eps, weight_decay,
    // warmup_steps, r and weight_lr_power are 0 or more, and stochastic_rounding is false.
    void check(const char* op) const;
};

struct SGDScheduleFreeOptions {
    double lr = 1;
    double beta = 0.9;              // "momentum" in a state dict; the weight of the average
    double weight_decay = 0;        // times the parameter, added to the gradient
    std::int64_t warmup_steps = 0;  // steps in which the rate grows linearly to lr
    double r = 0;                   // step k has the weight k^r in the average
    double weight_lr_power = 2;     // power of the largest rate so far in the weight of a step

    // Values that step(), train() and eval() change and that state dicts contain.
    std::int64_t k = 0;  // number of steps so far
    double weight_sum = 0, lr_max = -1, scheduled_lr = 0;
    bool train_mode = true;
    // Must be false, because the optimizer rounds parameters to nearest.
    bool stochastic_rounding = false;

    static constexpr const char* kName = "SGDScheduleFree";
    double momentum() const { return beta; }
    std::vector<NamedOption> named();
    // Throws ValueError unless beta is in (0, 1), lr, weight_decay, warmup_steps, r and
    // weight_lr_power are 0 or more, and stochastic_rounding is false.
    void check(const char* op) const;
};

// An optimizer that needs no schedule of the rate, because the model is evaluated with an average
// of the weights. It is created in training mode. Call eval() before you evaluate or save the
// model, and train() before you continue training. step() throws UsageError in evaluation mode.
template <class Options>
class ScheduleFree : public TensorOptimizer<Options> {
  public:
    using TensorOptimizer<Options>::TensorOptimizer;
    using Group = ParamGroup<Options>;

    // Replace the parameters by the trained parameters (train()) or by their average (eval()). Do
    // nothing if the optimizer is already in this mode. Wait for the device.
    void train() { set_mode(true); }
    void eval() { set_mode(false); }

  protected:
    bool saves_step() const override { return false; }
    // With a GradScaler, waits for the device, because a skipped step has no weight in the average.
    void update(Device device, std::span<const kernels::Slot> slots,
                const kernels::StepScalars* scalars) override;
    // Moves the parameter, and writes z, for an update of SGD by `gradient`.
    void move(const Tensor& param, const Tensor& values, const Tensor& z, const Tensor& gradient,
              const TensorStep& step, const Group& group) const;

  private:
    void set_mode(bool train);
};

extern template class ScheduleFree<AdamWScheduleFreeOptions>;
extern template class ScheduleFree<SGDScheduleFreeOptions>;

// The saved state of a parameter contains "z" and "exp_avg_sq".
class AdamWScheduleFree : public ScheduleFree<AdamWScheduleFreeOptions> {
  public:
    using ScheduleFree::ScheduleFree;

  protected:
    std::span<const char* const> buffer_names() const override;
    void step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                    const Group& group) override;
};

// The saved state of a parameter contains "z".
class SGDScheduleFree : public ScheduleFree<SGDScheduleFreeOptions> {
  public:
    using ScheduleFree::ScheduleFree;

  protected:
    std::span<const char* const> buffer_names() const override;
    void step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                    const Group& group) override;
};

}  // namespace axle::optim
