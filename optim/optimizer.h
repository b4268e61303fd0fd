// Optimizer: parameter groups, their state, and steps, usually with one fused kernel call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/memory/owning_ptr.h"
#include "core/tensor.h"
#include "core/tree/tree.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/step_state.h"

namespace axle::optim {

class Optimizer;

// The decision of OptimizerHooks about one step.
struct StepPlan {
    bool allowed = true;  // if false, the step does nothing
    // The scalars that the step applies, in the form of the argument of Optimizer::set_scalars. An
    // undefined tensor removes the current scalars; nullopt keeps them.
    std::optional<Tensor> scalars = {};
};

// Functions that an optimizer calls before it acts. Accelerator::prepare sets them.
struct OptimizerHooks {
    virtual ~OptimizerHooks() = default;
    // Called by step() before it changes anything.
    virtual StepPlan before_step(Optimizer& optimizer) = 0;
    // Returns whether before_step() would allow a step now. Has no side effects.
    virtual bool allows_step(const Optimizer&) const { return true; }
    // Called by zero_grad(). Returns false if zero_grad() must do nothing.
    virtual bool before_zero_grad(Optimizer& optimizer) = 0;
    // Called before the caller reads or writes options of the optimizer. If replayed steps have
    // changed options on the GPU, the hook copies them to the host.
    virtual void before_access(Optimizer&) {}
    // Called when the optimizer is destroyed or its hooks are replaced or removed.
    virtual void detached(const Optimizer&) noexcept {}
};

// An option of a group, with its name in state dicts of PyTorch.
struct NamedOption {
    using PartialPair = std::pair<std::optional<double>, double>;  // nullopt: None in PyTorch
    using Number = std::optional<double>;
    using Text = std::optional<std::string>;

    template <class T>
    NamedOption(const char* name_, T* value_) : name(name_), value(value_) {}

    const char* name;
    std::variant<double*, bool*, std::int64_t*, std::array<double, 2>*, std::array<double, 3>*,
                 PartialPair*, Text*, Number*>
        value;
};

// Parameters with their own options: `optimizer.param_groups()[0].lr = 3e-4`. Options may be
// changed at any time; add groups with add_param_group.
template <class Options>
struct ParamGroup : Options {
    ParamGroup(std::vector<Tensor> params_, Options options = {})  // NOLINT: a list is a group
        : Options(options), params(std::move(params_)) {}

    std::vector<Tensor> params;
    std::optional<double> initial_lr;  // base rate of schedules; set by the first scheduler
    // The seed of stochastic rounding. If unset, the first step draws it from the default
    // generator. All replicas of the parameters need the same seed.
    std::optional<std::uint64_t> rounding_seed;
    double no_momentum = 0;      // for GroupRef::momentum if the optimizer has no momentum
    double no_weight_decay = 0;  // the same for GroupRef::weight_decay
};

// The members that the parameter groups of all optimizers have.
struct GroupRef {
    const std::vector<Tensor>& params;
    double& lr;
    double& momentum;  // SGD's momentum, Adam's first beta; not used by optimizers without momentum
    std::optional<double>& initial_lr;
    bool& stochastic_rounding;
    std::optional<std::uint64_t>& rounding_seed;
    double& weight_decay;
};

// The state of a parameter, created by its first step or by load_state_dict(). Buffers are f64 if
// the parameter is f64, otherwise f32, except for the 8-bit buffers of AdamW8bit.
struct ParamState {
    Tensor step;  // number of updates, a 0-d f32 tensor
    std::array<Tensor, 5> buffers;
};

// The argument of GroupTable::upload_to: the data that it copies to the GPU.
struct UploadPlan {
    Tensor rates, row;  // see Optimizer::set_rates; may be undefined
    bool all = false;   // copy even unchanged values
};

// Base class of the optimizers. Parameters may be moved, converted or loaded at any time, because
// an optimizer refers to the tensors and not to their memory. A step skips parameters without a
// gradient and creates no state for them. Not thread-safe.
//
// A step is computed in f32 (in f64 for f64 parameters) and rounded to the dtype of the parameter.
// With rounding to nearest, a 16-bit parameter does not change if the update is less than half the
// distance to the next value. Training then stalls as updates shrink. The option
// stochastic_rounding rounds up or down at random such that the expected result is exact
// (kernels/ops/rounding.h). It needs no f32 copy of the parameter. The random numbers depend only
// on rounding_seed, the index of the parameter, its step and the element. They are equal on CPU and
// GPU, in replays of captured steps, and after loading a state.
class Optimizer {
  public:
    Optimizer();
    virtual ~Optimizer();
    // An optimizer can be moved before it is prepared, for example to return it from a function.
    // Its schedulers then change the rates of the new object, and `other` has no parameters. Throws
    // UsageError if hooks are set, because they refer to `other`. Do not move an optimizer between
    // unscale_() and step() of a GradScaler.
    Optimizer(Optimizer&& other);  // NOLINT: throws
    Optimizer(const Optimizer&) = delete;
    Optimizer& operator=(const Optimizer&) = delete;

    // Updates every parameter that has a gradient. Does nothing if the hooks do not allow a step,
    // or if the optimizer updates its parameters during backward (optim/lomo.h). Throws DeviceError
    // if the parameters are on several devices or the scalars are on another device, ShapeError if
    // the shape or the device of a gradient differs from its parameter, and UsageError if this
    // object was moved, needs a closure or cannot update a sharded parameter or a slice, or if a
    // captured step would create state or choose the seed of stochastic rounding. If step() throws
    // one of these errors, or runs out of memory, no parameter and no existing state has changed.
    void step();
    // Calls closure(), which must run backward and return the loss, and then step(). Returns the
    // loss, or an undefined tensor without calling closure() if the hooks do not allow a step.
    Tensor step(const std::function<Tensor()>& closure);
    // Removes the gradients, or, if set_to_none is false, fills existing gradients with zeros. Does
    // nothing if the hooks do not allow it. Throws UsageError if this object was moved.
    void zero_grad(bool set_to_none = true);

    virtual std::size_t group_count() const = 0;
    virtual GroupRef group(std::size_t index) = 0;
    // Returns whether GroupRef::momentum of the groups has an effect.
    virtual bool has_momentum() const = 0;
    // Returns references to the groups, independent of the type of the options. Assigning to the
    // references changes the groups.
    std::vector<GroupRef> param_groups();
    std::vector<Tensor> parameters();  // of all groups, in order
    // Returns the state of a parameter, or nullptr if no step or loaded state has created it.
    const ParamState* state(const Tensor& param) const;

    // Buffers of states that are created or loaded later use memory mapped from temporary files in
    // `folder` (offload to NVMe, core/files/file_memory.h); "" turns this off. Applies to
    // parameters on the CPU, and to local parts of sharded parameters if the parts are on the CPU.
    // Steps throw FileError if the disk is full, and then change nothing.
    void offload_states(const std::string& folder);

    // Returns {"state": {"0": {"step": ..., "exp_avg": ...}, ...}, "param_groups": [{"lr": ...,
    // "params": [0, ...]}]} with PyTorch's names. Parameters are numbered across all groups. The
    // tensors are not copied. With stochastic rounding, a group also has "stochastic_rounding" and
    // "rounding_seed", and each state has "step", even for SGD and Lion. Waits for the device.
    Tree state_dict();
    // Copies options and state from the tree, and converts buffers to the device of their
    // parameters and to the dtypes of ParamState. Missing options keep their values; unknown
    // options are ignored; ranges are not checked. Throws ValueError if the number or the sizes of
    // groups differ or a value has another type, IndexError if "state", "param_groups", "params", a
    // required "step" or a number of a list is missing, and ShapeError if a buffer or a step count
    // has another shape than its parameter requires; the optimizer is then unchanged.
    void load_state_dict(const Tree& tree);

    // Sets the hooks; nullptr removes them.
    void set_hooks(std::shared_ptr<OptimizerHooks> hooks);
    // Sets a tensor of three f64 on the device of the parameters, in the layout of
    // kernels::StepScalars. Each step reads the tensor on the device. An undefined tensor removes
    // the scalars. Throws ValueError for another size or dtype, and if the tensor is not
    // contiguous.
    void set_scalars(const Tensor& scalars);
    // Returns whether a gradient was not finite in the last step that the hooks allowed, which then
    // changed nothing. Waits for the device.
    bool step_was_skipped() const;
    // Returns the flag that step_was_skipped() reads, an f64 tensor with one element: not 0 if the
    // step was skipped. The address of the tensor does not change while the parameters stay on
    // their device. The tensor is undefined before set_scalars.
    const Tensor& skipped() const { return skipped_; }

    // --- for captured steps, whose replays do not read options on the host
    // Copies changed options to the GPU, where the kernels read them. step() does this, too. If
    // `all` is true, also copies unchanged options, because captured steps may have modified them
    // on the GPU.
    void push_options(bool all = false);
    // Sets a table of learning rates and momenta, an f64 tensor [rows, groups, 2] on the device of
    // the parameters. Later steps read their rates from one row of the table; the i64 tensor `row`
    // contains the number of the row, which is read when the step runs. Undefined tensors remove
    // the table.
    void set_rates(const Tensor& rates, const Tensor& row) { upload_plan_ = {rates, row, false}; }

  protected:
    // Returns the name that error messages use, for example "AdamW".
    virtual const char* name() const = 0;
    // Returns the options that a state dict contains for a group.
    virtual std::vector<NamedOption> options(std::size_t group) = 0;
    // Returns the names of the buffers in ParamState.
    virtual std::span<const char* const> buffer_names() const = 0;
    // Returns whether the parameters of a group need a buffer. `buffer` is less than 5; there can
    // be fewer names.
    virtual bool needs_buffer(std::size_t group, std::size_t buffer) const = 0;
    // Returns whether a buffer is one number, a 0-d tensor. If a parameter is sharded, all ranks
    // have the same number.
    virtual bool is_number(std::size_t) const { return false; }
    // Returns the initial value of the buffer at a position in buffer_names().
    virtual double initial_value(std::size_t /*group*/, std::size_t /*index*/) const { return 0; }
    // Sets the initial values, by default initial_value(), of a new buffer that is filled with 0.
    virtual void fill_buffer(Tensor& buffer, const Tensor& param, std::size_t group,
                             std::size_t index) const;
    // Returns whether states must contain "step". If not, a missing "step" is loaded as 1.
    virtual bool saves_step() const { return true; }
    // Returns the shape of a buffer that is not a number, or nullopt if the parameter does not have
    // this buffer.
    virtual std::optional<Shape> buffer_shape(const Tensor& param, std::size_t group,
                                              std::size_t index) const;
    virtual DType buffer_dtype(const Tensor& param, std::size_t index) const;
    virtual bool steps_in_backward() const { return false; }
    virtual bool needs_closure() const { return false; }  // if true, step() throws UsageError
    // Implements step(closure), if the hooks allow a step. The closure runs with gradients
    // recorded.
    virtual Tensor step_with_closure(const std::function<Tensor()>& closure);
    // Returns whether own_state() and load_own_state() replace the states of parameters.
    virtual bool has_own_state() const { return false; }
    // Return and load a map that is saved as the state of parameter 0. load_own_state() either
    // throws or changes the state.
    virtual Tree own_state() const;
    virtual void load_own_state(const Tree&) {}
    // Called before parameters that are sharded or slices are updated. Throws UsageError if the
    // optimizer cannot update such parameters.
    virtual void check_divided() const {}
    // Fills the GroupTable of the kernel and copies it to the device of the parameters.
    virtual void fill_groups(Device device) = 0;
    // Returns the argument of GroupTable::upload_to.
    const UploadPlan& upload_plan() const { return upload_plan_; }
    // Updates the parameters of the slots, usually with one kernel call; `scalars` may be null.
    virtual void update(Device device, std::span<const kernels::Slot> slots,
                        const kernels::StepScalars* scalars) = 0;

    // Returns the parameters of the slots, in the same order, for optimizers whose update() changes
    // the parameters with tensor ops. Drops the contiguous copies of strided parameters, so that
    // they are not copied back over the updated parameters.
    const std::vector<Tensor>& take_updated();
    // Copies the updated values of strided parameters from their contiguous copies back into the
    // parameters. Returns the parameters of the slots.
    const std::vector<Tensor>& copy_back();
    // Returns the tensor of set_scalars(), which can be undefined.
    const Tensor& scalars() const { return scalars_; }

    // Throws ValueError for parameters that are undefined, repeated or not leaves.
    void check_params(const std::vector<Tensor>& params);
    // Updates one parameter that has a gradient. `place` is its index across all groups.
    void step_one(const Tensor& param, std::size_t group, std::uint64_t place);
    // Returns the state of a parameter on its device, and creates the state if necessary.
    ParamState& prepare_state(const Tensor& param, std::size_t group);
    void complete_state(ParamState& state, const Tensor& param, std::size_t group) const;
    // Returns a buffer of a state, which is filled with zeros.
    Tensor new_buffer(const Shape& shape, DType dtype, Device device) const;

    void before_access() {
        if (hooks_) hooks_->before_access(*this);
    }

  private:
    friend class Scheduler;

    void check_not_moved(const char* what) const;
    bool needs_state(std::size_t group) const;
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
    ParamState load_state(const Tensor& param, std::size_t group, const Tree& tree) const;

    // The address of this object, shared with its schedulers; null after the destructor has run.
    std::shared_ptr<Optimizer*> address_;
    std::shared_ptr<OptimizerHooks> hooks_;
    Tensor scalars_;
    Tensor skipped_;
    UploadPlan upload_plan_;
    struct Private;  // the states, and the kernel table of the current step
    OwningPtr<Private> private_;
};

// Copies rows to the GPU into *copy, and applies the rates of the plan to the copy. If `changed` is
// false, copies the rows only if *copy has another size or device. If the device is not a GPU,
// makes *copy undefined and applies the rates of the plan to the rows.
void upload_rows(Device device, const UploadPlan& plan, kernels::GroupRows rows, bool changed,
                 Tensor* copy);

// The hyperparameters of all groups in the layout of a kernel. CPU kernels read this table. GPU
// kernels read a copy, whose address does not change while the device and the number of groups stay
// the same. The copy is updated when a value changes.
template <class Row>
class GroupTable {
  public:
    void clear() { rows_.clear(); }
    void push_back(const Row& row) { rows_.push_back(row); }
    // Copies the table to the GPU as the plan requires. Call it after the last push_back.
    void upload_to(Device device, const UploadPlan& plan) {
        const bool changed = plan.all || rows_ != sent_;
        if (changed) sent_.clear();  // marks the copy as invalid in case the next line throws
        upload_rows(device, plan, rows_, changed, &copy_);
        sent_ = rows_;
    }
    const Row* data() const {
        return copy_.defined() ? static_cast<const Row*>(copy_.raw_data()) : rows_.data();
    }

  private:
    std::vector<Row> rows_, sent_;
    Tensor copy_;  // the copy on the GPU, as bytes
};

// The part of an optimizer that depends on the type of the options. Options must have lr,
// stochastic_rounding, named() and check(op). With momentum or weight decay, Options also has
// momentum_ref() or weight_decay. If not all parameters are supported, it has a static function
// check_param(param), which throws.
template <class Options>
class GroupedOptimizer : public Optimizer {
  public:
    using OptionsOfGroup = Options;
    using Group = ParamGroup<Options>;

    std::vector<Group>& param_groups() {
        before_access();
        return groups_;
    }
    // Throws ValueError for options out of range and for undefined, repeated or non-leaf
    // parameters, and the errors of Options::check_param(), such as ShapeError of Muon.
    void add_param_group(Group group) {
        before_access();
        group.check(name());
        check_params(group.params);
        if constexpr (requires(const Tensor& param) { Options::check_param(param); })
            for (const Tensor& param : group.params) Options::check_param(param);
        groups_.push_back(std::move(group));
    }

    std::size_t group_count() const override { return groups_.size(); }
    bool has_momentum() const override {
        return requires(Options& options) { options.momentum_ref(); };
    }
    GroupRef group(std::size_t index) override {
        Group& g = groups_.at(index);
        return {g.params,
                g.lr,
                momentum_of(g),
                g.initial_lr,
                g.stochastic_rounding,
                g.rounding_seed,
                weight_decay_of(g)};
    }

  protected:
    // Add the groups; constructors call these functions. Throw ValueError if the list is empty.
    void add_params(std::vector<Tensor> params, const Options& options) {
        if (params.empty())
            throw ValueError(str(name(), ": the list of parameters must not be empty"));
        add_param_group({std::move(params), options});
    }
    void add_groups(std::vector<Group> groups) {
        if (groups.empty()) throw ValueError(str(name(), ": the list of groups must not be empty"));
        for (Group& group : groups) add_param_group(std::move(group));
    }

    std::vector<NamedOption> options(std::size_t index) override { return groups_[index].named(); }

    std::vector<Group> groups_;

  private:
    static double& momentum_of(Group& group) {
        if constexpr (requires { group.momentum_ref(); })
            return group.momentum_ref();
        else
            return group.no_momentum;
    }
    static double& weight_decay_of(Group& group) {
        if constexpr (requires { group.weight_decay; })
            return group.weight_decay;
        else
            return group.no_weight_decay;
    }
};

}  // namespace axle::optim
