// Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019), as in torch.optim.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "optim/optimizer.h"

namespace axle::optim {

// Options of Adam, which adds weight decay to the gradient.
struct AdamOptions {
    double lr = 1e-3;
    std::array<double, 2> betas = {0.9, 0.999};
    double eps = 1e-8;
    double weight_decay = 0;
    bool amsgrad = false;
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    static constexpr const char* kName = "Adam";
    static constexpr bool kDecoupledDecay = false;
    double& momentum_ref() { return betas[0]; }
    std::vector<NamedOption> named();
    // Throws ValueError if an option is out of range.
    void check(const char* op) const;
};

// Options of AdamW, which applies weight decay directly to the parameter.
struct AdamWOptions {
    double lr = 1e-3;
    std::array<double, 2> betas = {0.9, 0.999};
    double eps = 1e-8;
    double weight_decay = 1e-2;
    bool amsgrad = false;
    bool maximize = false;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)

    static constexpr const char* kName = "AdamW";
    static constexpr bool kDecoupledDecay = true;
    double& momentum_ref() { return betas[0]; }
    std::vector<NamedOption> named();
    // Throws ValueError if an option is out of range.
    void check(const char* op) const;
};

// The common implementation of Adam and AdamW. The constructors throw ValueError for an empty list,
// for parameters that are undefined, repeated or not leaves, and for options out of range. The
// saved state of a parameter contains "step", "exp_avg" and "exp_avg_sq"; with amsgrad, also
// "max_exp_avg_sq".
template <class Options>
class AdamFamily : public GroupedOptimizer<Options> {
  public:
    using Group = ParamGroup<Options>;

    explicit AdamFamily(std::vector<Tensor> params, Options options = {});
    // Creates an optimizer with several parameter groups, for example AdamW({{matrices, {.lr =
    // 6e-4, .weight_decay = 0.1}}, {vectors, {.lr = 6e-4}}}).
    explicit AdamFamily(std::vector<Group> groups);

  protected:
    const char* name() const override { return Options::kName; }
    std::span<const char* const> buffer_names() const override;
    std::size_t buffers_needed(std::size_t group) const override;
    void fill_groups(Device device) override;
    void update(Device device, std::span<const kernels::Slot> slots,
                const kernels::StepScalars* scalars) override;

  private:
    GroupTable<kernels::AdamGroup> table_;
};

extern template class AdamFamily<AdamOptions>;
extern template class AdamFamily<AdamWOptions>;

class Adam : public AdamFamily<AdamOptions> {
  public:
    using AdamFamily::AdamFamily;
};

class AdamW : public AdamFamily<AdamWOptions> {
  public:
    using AdamFamily::AdamFamily;
};

}  // namespace axle::optim
