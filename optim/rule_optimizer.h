// RuleOptimizer: an optimizer that updates each element of a parameter independently, with one
// kernel call for all parameters.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "optim/optimizer.h"

namespace axle::optim {

// Options must have the members that GroupedOptimizer needs, and kName, the name in error messages.
// Row is the kernel's form of the options. The constructors throw ValueError for an empty list, for
// parameters that are undefined, repeated or not leaves, and for options out of range. The
// parameters can be sharded or slices; then each process updates its elements.
template <class Options, class Row>
class RuleOptimizer : public GroupedOptimizer<Options> {
  public:
    using Group = ParamGroup<Options>;

    explicit RuleOptimizer(std::vector<Tensor> params, Options options = {}) {
        this->add_params(std::move(params), options);
    }
    // Creates an optimizer with several parameter groups, for example AdamW({{matrices, {.lr =
    // 6e-4, .weight_decay = 0.1}}, {vectors, {.lr = 6e-4}}}).
    explicit RuleOptimizer(std::vector<Group> groups) { this->add_groups(std::move(groups)); }

  protected:
    const char* name() const override { return Options::kName; }
    // optim/rule_optimizer_impl.h defines these functions.
    std::span<const char* const> buffer_names() const override;
    bool needs_buffer(std::size_t group, std::size_t buffer) const override;
    bool is_number(std::size_t buffer) const override;
    double initial_value(std::size_t group, std::size_t buffer) const override;
    bool saves_step() const override;
    void fill_groups(Device device) override;
    void update(Device device, std::span<const kernels::Slot> slots,
                const kernels::StepScalars* scalars) override;

  private:
    GroupTable<Row> table_;
};

}  // namespace axle::optim
