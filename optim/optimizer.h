// Optimizer: parameter groups, their state, and one fused kernel call per step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/tensor.h"
#include "core/tree/tree.h"
#include "kernels/ops/optimizer.h"

namespace axle::optim {

class Optimizer;

// The decision of a hook about one step.
struct StepPlan {
    bool allowed = true;  // if false, the step does nothing
    // The scalars that the step applies, as in Optimizer::set_scalars; an undefined tensor means
    // none. nullopt keeps the scalars that the optimizer has.
    std::optional<Tensor> scalars = {};
};

// Called by an optimizer before it acts. Set by Accelerator::prepare.
struct OptimizerHooks {
    virtual ~OptimizerHooks() = default;
    // Called by step() before it changes anything.
    virtual StepPlan before_step(Optimizer& optimizer) = 0;
    // Returns whether before_step() would allow a step now, without side effects.
    virtual bool allows_step(const Optimizer&) const { return true; }
    // Called by zero_grad(). Returns false if zero_grad() must do nothing.
    virtual bool before_zero_grad(Optimizer& optimizer) = 0;
    // Called before the optimizer's options are read or written from outside. Replayed steps can be
    // ahead of the options on the host: the hook brings them up to date.
    virtual void before_access(Optimizer&) {}
};

// An option of a group, with the name that PyTorch saves it under.
struct NamedOption {
    const char* name;
    std::variant<double*, bool*, std::array<double, 2>*> value;
};

// Parameters with their own options: `optimizer.param_groups()[0].lr = 3e-4`. Options can be
// changed at any time; add groups with add_param_group.
template <class Options>
struct ParamGroup : Options {
    ParamGroup(std::vector<Tensor> params_, Options options = {})  // NOLINT: a list is a group
        : Options(options), params(std::move(params_)) {}

    std::vector<Tensor> params;
    std::optional<double> initial_lr;  // base rate of schedules; set by the first scheduler
    // Seed of stochastic rounding. If unset, the first step takes it from the default generator.
    // Processes that hold copies of the parameters need the same seed.
    std::optional<std::uint64_t> rounding_seed;
};

// The parts of a group that all optimizers have.
struct GroupRef {
    const std::vector<Tensor>& params;
    double& lr;
    double& momentum;  // SGD's momentum, Adam's first beta
    std::optional<double>& initial_lr;
    bool& stochastic_rounding;
    std::optional<std::uint64_t>& rounding_seed;
};

// The state of one parameter, created by its first step. Buffers are f64 for an f64 parameter, else
// f32.
struct ParamState {
    Tensor step;  // number of updates: 0-d, f32
    std::array<Tensor, 3> buffers;
};

// How hyperparameters are copied to a GPU.
struct UploadPlan {
    Tensor rates, row;  // see Optimizer::set_rates; can be undefined
    bool all = false;   // copy even unchanged values
};

// Base class of the optimizers. Parameters are held by handle, so moving, converting or loading
// them is allowed. Parameters without a gradient are skipped and have no state. Not thread-safe.
//
// A step is computed in f32 (f64 for f64 parameters) and rounded to the parameter's dtype. With
// rounding to nearest, a 16-bit parameter does not change if the update is less than half the
// distance to the next value, so training stalls as updates shrink. The option stochastic_rounding
// rounds up or down at random such that the expected step is exact, without an f32 copy
// (kernels/ops/rounding.h). The random numbers depend only on rounding_seed, the parameter's index,
// its step and the element: they are equal on CPU and GPU, in replays of captured steps, and after
// loading a state.
class Optimizer {
  public:
    Optimizer() = default;
    virtual ~Optimizer() = default;
    Optimizer(const Optimizer&) = delete;
    Optimizer& operator=(const Optimizer&) = delete;

    // Updates every parameter that has a gradient, in place. Does nothing if the optimizer updates
    // its parameters during backward (optim/lomo.h).
    void step();
    // Calls closure(), which computes the loss, runs backward and returns the loss; then step(). If
    // the hooks do not allow a step, closure is not called and the result is undefined.
    Tensor step(const std::function<Tensor()>& closure);
    // Drops the gradients, or fills existing gradients with zeros.
    void zero_grad(bool set_to_none = true);

    virtual std::size_t group_count() const = 0;
    virtual GroupRef group(std::size_t index) = 0;
    // Returns the groups without the type of their options. Changes to the references take effect.
    std::vector<GroupRef> param_groups();
    // Returns the parameters of all groups, in order.
    std::vector<Tensor> parameters();
    // Returns nullptr before the parameter's first step.
    const ParamState* state(const Tensor& param) const;

    // Returns {"state": {"0": {"step": ..., "exp_avg": ...}, ...}, "param_groups": [{"lr": ...,
    // "params": [0, ...]}]} with PyTorch's names. Parameters are numbered across all groups.
    // Tensors are shared with the optimizer, not copied. With stochastic rounding a group also has
    // "stochastic_rounding" and "rounding_seed", and SGD's states also have "step".
    Tree state_dict();
    // Copies options and state from the tree. Everything is checked before anything changes: groups
    // must have the saved sizes (ValueError) and buffers the right shapes (ShapeError). Buffers
    // take the dtype and device of the parameters. Missing options keep their values; unknown ones
    // are ignored.
    void load_state_dict(const Tree& tree);

    // Sets the hooks; nullptr removes them.
    void set_hooks(std::shared_ptr<OptimizerHooks> hooks) { hooks_ = std::move(hooks); }
    // Sets the memory of a kernels::StepScalars: three f64 on the parameters' device, which each
    // step reads when it runs. An undefined tensor removes it.
    void set_scalars(const Tensor& scalars);
    // Returns whether the last step that the hooks allowed found infinite gradients and changed
    // nothing. Reads device memory.
    bool step_was_skipped() const { return skipped_.defined() && skipped_.item() != 0; }
    // Returns the flag that step_was_skipped() reads. It is one f64, nonzero if that step was
    // skipped. Its address is stable while the parameters stay on their device. Undefined before
    // set_scalars.
    const Tensor& skipped() const { return skipped_; }

    // --- for captured steps, whose replays do not read options on the host
    // Copies changed options to the GPU, where the kernels read them; step() does this first. `all`
    // also copies unchanged ones, in case captured steps modified the GPU's values.
    void push_options(bool all = false);
    // Sets the table rates[row, group] = {learning rate, momentum}, in f64 on the parameters'
    // device. Steps queued from now on read their rates from this table, in the row that `row` (one
    // i64) contains when they run. Undefined tensors end this.
    void set_rates(const Tensor& rates, const Tensor& row) { upload_plan_ = {rates, row, false}; }

  protected:
    // Returns the name in messages, for example "AdamW".
    virtual const char* name() const = 0;
    virtual std::vector<NamedOption> options(std::size_t group) = 0;
    // Return the names of ParamState's buffers, and how many of them a group needs.
    virtual std::span<const char* const> buffer_names() const = 0;
    virtual std::size_t buffers_needed(std::size_t group) const = 0;
    // Returns whether "step" is always saved. If not, a saved state without "step" counts as
    // stepped.
    virtual bool saves_step() const { return true; }
    // Returns the shape of a state buffer, or nullopt if the parameter does not have this buffer.
    virtual std::optional<Shape> buffer_shape(const Tensor& param, std::size_t) const {
        return param.shape();
    }
    virtual bool steps_in_backward() const { return false; }
    // Fills the kernel's GroupTable and uploads it to the parameters' device.
    virtual void fill_groups(Device device) = 0;
    // Returns the argument of GroupTable::upload_to.
    const UploadPlan& upload_plan() const { return upload_plan_; }
    virtual void update(Device device, std::span<const kernels::Slot> slots,
                        const kernels::StepScalars* scalars) = 0;

    // Throws ValueError for duplicate parameters and for tensors that are not leaves.
    void check_params(const std::vector<Tensor>& params);
    // Steps one parameter, which has a gradient. `place` is its index across all groups.
    void step_one(const Tensor& param, std::size_t group, std::uint64_t place);
    // Returns the state of a parameter on its device; creates it if necessary.
    ParamState& prepare_state(const Tensor& param, std::size_t group);

    void before_access() {
        if (hooks_) hooks_->before_access(*this);
    }

  private:
    kernels::Slot slot_of(const Tensor& param, Tensor grad, std::size_t group);
    void add_state(kernels::Slot& slot, const Tensor& param, std::size_t group);
    std::uint64_t rounding_seed(std::size_t group, std::uint64_t param);
    void clear_slots();
    void fill_slots();
    void add_slot(const Tensor& param, Tensor grad, std::size_t group, std::uint64_t place);
    void step_slots();
    void finish_slots();
    Tree group_tree(std::size_t index, std::int64_t first_param);
    Tree state_tree(const ParamState& state, bool with_step) const;
    void read_options(std::size_t index, const Tree& tree,
                      std::vector<std::function<void()>>& writes);
    ParamState load_state(const Tensor& param, const Tree& tree) const;

    std::unordered_map<const Impl*, ParamState> states_;
    std::shared_ptr<OptimizerHooks> hooks_;
    Tensor scalars_;
    Tensor skipped_;
    UploadPlan upload_plan_;

    // The table of the current step. Refilling it in each step is as cheap as checking it.
    std::vector<kernels::Slot> slots_;
    std::vector<Tensor> updated_;
    // Contiguous copies of strided parameters (copied back after the step) and of strided
    // gradients.
    std::vector<std::pair<Tensor, Tensor>> dense_copies_;
    std::vector<Tensor> dense_grads_;
};

// The hyperparameters of all groups in the layout of a kernel. CPU kernels read them from here, GPU
// kernels from a copy at a fixed address that is updated when a value changes.
template <class Row>
class GroupTable {
  public:
    void clear() { rows_.clear(); }
    void push_back(const Row& row) { rows_.push_back(row); }
    // Call it after the last push_back.
    void upload_to(Device device, const UploadPlan& upload_plan);
    const Row* data() const {
        return copy_.defined() ? static_cast<const Row*>(copy_.raw_data()) : rows_.data();
    }

  private:
    void send(Device device, bool all);

    std::vector<Row> rows_, sent_;
    Tensor copy_;  // the copy on the GPU, as bytes
};

extern template class GroupTable<kernels::SgdGroup>;
extern template class GroupTable<kernels::AdamGroup>;

// The part of an optimizer that depends on the options' type, which must have lr,
// stochastic_rounding, momentum_ref(), named() and check(op).
template <class Options>
class GroupedOptimizer : public Optimizer {
  public:
    using Group = ParamGroup<Options>;

    std::vector<Group>& param_groups() {
        before_access();
        return groups_;
    }
    void add_param_group(Group group) {
        before_access();
        group.check(name());
        check_params(group.params);
        groups_.push_back(std::move(group));
    }

    std::size_t group_count() const override { return groups_.size(); }
    GroupRef group(std::size_t index) override {
        Group& g = groups_.at(index);
        return {g.params,       g.lr, g.momentum_ref(), g.initial_lr, g.stochastic_rounding,
                g.rounding_seed};
    }

  protected:
    // Used by constructors. Throw ValueError for an empty list.
    void add_params(std::vector<Tensor> params, const Options& options) {
        if (params.empty()) throw ValueError(str(name(), ": the list of parameters is empty"));
        add_param_group({std::move(params), options});
    }
    void add_groups(std::vector<Group> groups) {
        if (groups.empty()) throw ValueError(str(name(), ": the list of groups is empty"));
        for (Group& group : groups) add_param_group(std::move(group));
    }

    std::vector<NamedOption> options(std::size_t index) override { return groups_[index].named(); }

    std::vector<Group> groups_;
};

}  // namespace axle::optim
