// What all optimizers share: groups of parameters, their state, and one fused kernel call per step.
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

namespace axle::inline v0::optim {

class Optimizer;

// Consulted by an optimizer before it acts; a call that is not allowed does nothing.
struct OptimizerGate {
    virtual ~OptimizerGate() = default;
    // Also the moment to hand over the step's scalars (Optimizer::set_scalars).
    virtual bool allows_step(Optimizer& optimizer) = 0;
    // Whether it would, without acting.
    virtual bool is_open(const Optimizer&) const { return true; }
    virtual bool allows_zero_grad(Optimizer& optimizer) = 0;
    // Before the optimizer's options are read or written from outside: the moment to bring them up
    // to date, where captured steps have gone ahead of them.
    virtual void before_access(Optimizer&) {}
};

// An option of a group, by the name that PyTorch saves it under.
struct NamedOption {
    const char* name;
    std::variant<double*, bool*, std::array<double, 2>*> value;
};

// A group with the options of its optimizer: `optimizer.param_groups()[0].lr = 3e-4`. Options may
// be changed at any time; parameters are added with add_param_group.
template <class Options>
struct ParamGroup : Options {
    ParamGroup(std::vector<Tensor> params_, Options options = {})  // NOLINT: a list is a group
        : Options(options), params(std::move(params_)) {}

    std::vector<Tensor> params;
    std::optional<double> initial_lr;  // what schedules start from; set by the first scheduler
    // Of stochastic_rounding: taken from the default generator by the first step that
    // finds none. Processes that keep copies of the parameters need the same one.
    std::optional<std::uint64_t> rounding_seed;
};

// What a group has under any optimizer.
struct GroupRef {
    const std::vector<Tensor>& params;
    double& lr;
    double& momentum;  // SGD's momentum, Adam's first beta
    std::optional<double>& initial_lr;
    bool& stochastic_rounding;
    std::optional<std::uint64_t>& rounding_seed;
};

// Of one parameter, from its first step on. Buffers are f64 for an f64 parameter, else f32.
struct ParamState {
    Tensor step;  // updates so far: 0-d, f32
    std::array<Tensor, 3> buffers;
};

// How hyperparameters get to a GPU.
struct GroupHandover {
    Tensor rates, row;  // as Optimizer::set_rates has them, or undefined
    bool all = false;   // whatever has been sent before
};

// Parameters are held by handle: moving, converting or loading them keeps the optimizer right.
// Parameters without a gradient are skipped and have no state. One thread at a time.
//
// A step is computed in f32 (f64 for f64 parameters) and rounded to the parameter. To nearest, a
// 16-bit parameter stays where it is under updates below half its distance to the next value, and
// training stalls as they shrink. With the option stochastic_rounding it goes up or down at random,
// so that the mean of its steps is right without a copy in f32 (kernels/ops/rounding.h). The random
// numbers depend on rounding_seed, the parameter's place among all, its step and the element: they
// are the same on CPU and GPU, in replays of captured steps, and after loading a state.
class Optimizer {
  public:
    Optimizer() = default;
    virtual ~Optimizer() = default;
    Optimizer(const Optimizer&) = delete;
    Optimizer& operator=(const Optimizer&) = delete;

    // Updates every parameter that has a gradient, in place. Nothing for one that updates its
    // parameters in backward (optim/lomo.h).
    void step();
    // closure() computes the loss, has it differentiated and returns it, before step(). Where the
    // gate is closed it isn't called, and the result is undefined.
    Tensor step(const std::function<Tensor()>& closure);
    // Forgets the gradients, or fills those that there are with zeros.
    void zero_grad(bool set_to_none = true);

    virtual std::size_t group_count() const = 0;
    virtual GroupRef group(std::size_t index) = 0;
    // For code that knows no more than that it is an optimizer; options are live here too.
    std::vector<GroupRef> param_groups();
    // Of all groups, in order.
    std::vector<Tensor> parameters();
    // Null before the parameter's first step.
    const ParamState* state(const Tensor& param) const;

    // {"state": {"0": {"step": ..., "exp_avg": ...}, ...}, "param_groups": [{"lr": ..., "params":
    // [0, ...]}]}, with PyTorch's names. Parameters are numbered through all groups; tensors are
    // shared with the optimizer, not copied. A group that is rounded stochastically has
    // "stochastic_rounding" and "rounding_seed" too, and "step" in the states of SGD.
    Tree state_dict();
    // Copies options and state. Groups must have the sizes that they were saved with (ValueError)
    // and buffers the shapes (ShapeError): all is checked before anything changes. Buffers take
    // the dtype and device that the parameters ask for. Options that the tree lacks stay as they
    // are, and those that are unknown are ignored.
    void load_state_dict(const Tree& tree);

    // Null takes it away.
    void set_gate(std::shared_ptr<OptimizerGate> gate) { gate_ = std::move(gate); }
    // The memory of a kernels::StepScalars: three f64 on the parameters' device, read by each step
    // when it runs. An undefined tensor takes it away.
    void set_scalars(const Tensor& scalars);
    // Whether the last step that its gate allowed found infinite gradients and changed nothing.
    // Reads device memory.
    bool step_was_skipped() const { return skipped_.defined() && skipped_.item() != 0; }
    // What it reads: one f64, not 0 if that step was skipped. In one place of memory as long as the
    // parameters stay on their device; undefined before set_scalars.
    const Tensor& skipped() const { return skipped_; }

    // For who captures steps and replays them, which do not look at the host's options.
    // What step() does first: brings options that have changed to the GPU, from where its kernels
    // read them. `all` where captured steps may have changed those.
    void push_options(bool all = false);
    // rates[row, group] = {learning rate, momentum}, f64, on the parameters' device: steps that are
    // queued from now on take them from the row that `row`, one i64, says when they run. Undefined
    // tensors end that.
    void set_rates(const Tensor& rates, const Tensor& row) { handover_ = {rates, row, false}; }

  protected:
    // "AdamW"
    virtual const char* name() const = 0;
    virtual std::vector<NamedOption> options(std::size_t group) = 0;
    // The names of ParamState's buffers, and how many of them a group needs.
    virtual std::span<const char* const> buffer_names() const = 0;
    virtual std::size_t buffers_needed(std::size_t group) const = 0;
    // Whether "step" is always saved; if not, a state that is saved without has been stepped.
    virtual bool saves_step() const { return true; }
    // Of a buffer in the parameter's state; nothing where the parameter has none of them.
    virtual std::optional<Shape> buffer_shape(const Tensor& param, std::size_t) const {
        return param.shape();
    }
    virtual bool steps_in_backward() const { return false; }
    // Fills the GroupTable of the kernel and brings it to the parameters' device.
    virtual void fill_groups(Device device) = 0;
    // For GroupTable::bring_to.
    const GroupHandover& handover() const { return handover_; }
    virtual void update(Device device, std::span<const kernels::Slot> slots,
                        const kernels::StepScalars* scalars) = 0;

    // Throws ValueError for what no group may hold: duplicates, and tensors that were computed.
    void check_params(const std::vector<Tensor>& params);
    // step() of one parameter, which is the place-th of all; it has a gradient.
    void step_alone(const Tensor& param, std::size_t group, std::uint64_t place);
    // The state of a parameter on its device, made where there is none.
    ParamState& prepare_state(const Tensor& param, std::size_t group);

    void before_access() {
        if (gate_) gate_->before_access(*this);
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
    std::shared_ptr<OptimizerGate> gate_;
    Tensor scalars_;
    Tensor skipped_;
    GroupHandover handover_;

    // The table of the current step: filled anew each time, which costs no more than to check it.
    std::vector<kernels::Slot> slots_;
    std::vector<Tensor> updated_;
    // Contiguous stand-ins for strided parameters, to be copied back, and for strided gradients.
    std::vector<std::pair<Tensor, Tensor>> stand_ins_;
    std::vector<Tensor> held_;
};

// The hyperparameters of all groups, as a kernel reads them: from here on the CPU, on a GPU from a
// copy that keeps its place in memory and is written when a value has changed.
template <class Row>
class GroupTable {
  public:
    void clear() { rows_.clear(); }
    void push_back(const Row& row) { rows_.push_back(row); }
    // Behind the last row.
    void bring_to(Device device, const GroupHandover& handover);
    const Row* data() const {
        return copy_.defined() ? static_cast<const Row*>(copy_.raw_data()) : rows_.data();
    }

  private:
    void send(Device device, bool all);

    std::vector<Row> rows_, sent_;
    Tensor copy_;  // bytes
};

extern template class GroupTable<kernels::SgdGroup>;
extern template class GroupTable<kernels::AdamGroup>;

// The part that depends on the type of the options, which has: lr, stochastic_rounding,
// momentum_ref(), named(), check(op).
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
    // What constructors do; ValueError where nothing is given.
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

}  // namespace axle::inline v0::optim
