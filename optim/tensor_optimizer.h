// TensorOptimizer: an optimizer that updates a parameter with tensor ops, for algorithms that need
// norms, rows or products of whole parameters.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "optim/optimizer.h"

namespace axle::optim {

// The values of one step of a parameter, as 0-d tensors on its device.
struct TensorStep {
    // Reads the tensor of Optimizer::set_scalars(), which can be undefined. Throws UsageError, with
    // the optimizer's name, during a graph capture.
    TensorStep(const char* optimizer, const Tensor& scalars);

    // Sets t to the number of the step after `step`.
    void count(const Tensor& step);
    // Returns the gradient of the parameter in f32 (f64 for f64 parameters), times the factor of
    // the step, and negated if maximize is true.
    Tensor gradient(const Tensor& param, bool maximize) const;
    // Copies a value to the target, unless the step is skipped. Returns the value.
    Tensor write(Tensor target, const Tensor& value) const;

    Tensor skipped;  // whether the step is skipped; undefined without scalars
    Tensor factor;   // the factor of the gradient; undefined without scalars
    Tensor t;        // the number of the step, f32, from 1
};

// Throws UsageError with a message that the optimizer needs whole parameters.
[[noreturn]] void refuse_divided(const char* optimizer);
// Throws ValueError if stochastic_rounding is true.
void refuse_stochastic_rounding(const char* op, bool stochastic_rounding);

// Options must have the members that GroupedOptimizer needs, and kName, the name in error messages.
// The constructors throw ValueError for an empty list, for parameters that are undefined, repeated
// or not leaves, and for options out of range. Besides the errors of Optimizer::step(), step()
// throws UsageError if parameters are sharded or slices, and during a graph capture. It uses
// several tensor ops for each parameter, so it may have updated some parameters if it runs out of
// memory.
template <class Options>
class TensorOptimizer : public GroupedOptimizer<Options> {
  public:
    using Group = ParamGroup<Options>;

    explicit TensorOptimizer(std::vector<Tensor> params, Options options = {}) {
        this->add_params(std::move(params), options);
    }
    explicit TensorOptimizer(std::vector<Group> groups) { this->add_groups(std::move(groups)); }

  protected:
    // Updates one parameter, which is not empty, and its buffers, with step.write().
    virtual void step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                            const Group& group) = 0;

    const char* name() const override { return Options::kName; }
    bool needs_buffer(std::size_t, std::size_t buffer) const override {
        return buffer < this->buffer_names().size();
    }
    void check_divided() const override { refuse_divided(Options::kName); }
    void fill_groups(Device) override {}
    void update(Device, std::span<const kernels::Slot> slots,
                const kernels::StepScalars*) override {
        TensorStep step(Options::kName, this->scalars());
        const std::vector<Tensor>& params = this->take_updated();
        for (std::size_t i = 0; i < slots.size(); ++i) {
            if (params[i].numel() == 0) continue;
            const ParamState& own = *this->state(params[i]);
            step.count(own.step);
            step_param(params[i], own, step,
                       this->groups_[static_cast<std::size_t>(slots[i].group)]);
            step.write(own.step, step.t);
        }
    }
};

}  // namespace axle::optim
