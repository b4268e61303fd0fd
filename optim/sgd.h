// Stochastic gradient descent with momentum, like torch.optim.SGD.
#pragma once

#include <span>
#include <vector>

#include "optim/optimizer.h"

namespace axle::optim {

struct SGDOptions {
    double lr = 1e-3;
    double momentum = 0;
    double dampening = 0;
    double weight_decay = 0;  // added to the gradient
    bool nesterov = false;    // needs momentum > 0 and dampening = 0
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    double& momentum_ref() { return momentum; }
    std::vector<NamedOption> named();
    // Throws ValueError if an option is out of range.
    void check(const char* op) const;
};

// The SGD optimizer. With momentum, the saved state of a parameter contains "momentum_buffer". The
// constructors throw ValueError for an empty list, for parameters that are undefined, repeated or
// not leaves, and for options out of range.
class SGD : public GroupedOptimizer<SGDOptions> {
  public:
    explicit SGD(std::vector<Tensor> params, SGDOptions options = {});
    // Creates an optimizer with several parameter groups, for example SGD({{weights, {.lr = 0.1}},
    // {biases, {.lr = 0.2}}}).
    explicit SGD(std::vector<Group> groups);

  protected:
    const char* name() const override { return "SGD"; }
    std::span<const char* const> buffer_names() const override;
    std::size_t buffers_needed(std::size_t group) const override;
    bool saves_step() const override { return false; }
    void fill_groups(Device device) override;
    void update(Device device, std::span<const kernels::Slot> slots,
                const kernels::StepScalars* scalars) override;

  private:
    GroupTable<kernels::SgdGroup> table_;
};

}  // namespace axle::optim
