#include "optim/optimizer.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <unordered_set>

#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "core/cuda/graph.h"
#include "core/files/file_memory.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "core/random.h"
#include "kernels/ops/copy.h"
#include "kernels/ops/step_state.h"
#include "optim/optimizer_private.h"

namespace axle::optim {
namespace {

static_assert(sizeof(kernels::StepScalars) == 3 * sizeof(double));

DType state_dtype(const Tensor& param) { return param.dtype() == f64 ? f64 : f32; }

}  // namespace

Optimizer::Optimizer()
    : address_(std::make_shared<Optimizer*>(this)), private_(make_owning<Private>()) {}
Optimizer::~Optimizer() {
    set_hooks(nullptr);
    if (address_) *address_ = nullptr;
}

Optimizer::Optimizer(Optimizer&& other) : Optimizer() {  // NOLINT(*-noexcept-move-constructor)
    if (other.hooks_)
        throw UsageError(str(other.name(),
                             ": a prepared optimizer cannot be moved: an Accelerator "
                             "refers to it; move it before prepare()"));
    address_ = std::move(other.address_);
    if (address_) *address_ = this;
    private_.swap(other.private_);
    scalars_ = std::move(other.scalars_);
    skipped_ = std::move(other.skipped_);
    upload_plan_ = std::move(other.upload_plan_);
}

void Optimizer::check_not_moved(const char* what) const {
    if (!address_)
        throw UsageError(
            str(name(), ": ", what, ": this optimizer was moved to another object; use that one"));
}

bool Optimizer::step_was_skipped() const { return skipped_.defined() && skipped_.item() != 0; }

std::optional<Shape> Optimizer::buffer_shape(const Tensor& param, std::size_t, std::size_t) const {
    return param.shape();
}

DType Optimizer::buffer_dtype(const Tensor& param, std::size_t) const { return state_dtype(param); }

void Optimizer::fill_buffer(Tensor& buffer, const Tensor&, std::size_t group,
                            std::size_t index) const {
    if (const double value = initial_value(group, index); value != 0) buffer.fill_(value);
}

void Optimizer::set_hooks(std::shared_ptr<OptimizerHooks> hooks) {
    const auto before = std::exchange(hooks_, std::move(hooks));
    if (before && before != hooks_) before->detached(*this);
}

std::vector<GroupRef> Optimizer::param_groups() {
    before_access();
    std::vector<GroupRef> groups;
    for (std::size_t g = 0; g < group_count(); ++g) groups.push_back(group(g));
    return groups;
}

std::vector<Tensor> Optimizer::parameters() {
    std::vector<Tensor> all;
    for (std::size_t g = 0; g < group_count(); ++g) {
        const std::vector<Tensor>& params = group(g).params;
        all.insert(all.end(), params.begin(), params.end());
    }
    return all;
}

const ParamState* Optimizer::state(const Tensor& param) const {
    const auto found = private_->states.find(param.impl().get());
    return found == private_->states.end() ? nullptr : &found->second;
}

void Optimizer::check_params(const std::vector<Tensor>& params) {
    std::unordered_set<const Impl*> taken;
    for (const Tensor& other : parameters()) taken.insert(other.impl().get());
    for (std::size_t i = 0; i < params.size(); ++i) {
        const Tensor& param = params[i];
        if (!param.defined()) throw ValueError(str(name(), ": parameter ", i, " is undefined"));
        if (!param.is_leaf())
            throw ValueError(str(name(), ": parameter ", i, " of shape ", param.shape(),
                                 " is the result of an operation, not a leaf; detach() it first"));
        if (!taken.insert(param.impl().get()).second)
            throw ValueError(str(name(), ": parameter ", i, " of shape ", param.shape(),
                                 " appears more than once"));
    }
}

void Optimizer::set_scalars(const Tensor& scalars) {
    if (scalars.defined() &&
        (scalars.dtype() != f64 || scalars.numel() != 3 || !scalars.is_contiguous()))
        throw ValueError(str(name(), ": scalars must be 3 contiguous float64 numbers: they are ",
                             scalars.shape(), " ", scalars.dtype(),
                             scalars.is_contiguous() ? "" : ", not contiguous"));
    scalars_ = scalars;
    if (!scalars.defined() || (skipped_.defined() && skipped_.device() == scalars.device())) return;
    skipped_ = zeros({}, {.dtype = f64, .device = scalars.device()});
}

void Optimizer::zero_grad(bool set_to_none) {
    check_not_moved("zero_grad");
    if (hooks_ && !hooks_->before_zero_grad(*this)) return;
    const NoGrad no_grad;
    for (std::size_t g = 0; g < group_count(); ++g)
        for (const Tensor& param : group(g).params) {
            if (set_to_none) {
                param.zero_grad();
                continue;
            }
            if (autograd::is_sharded(param)) autograd::take_pending_gradient(param);
            if (Tensor grad = autograd::local_part(param).grad(); grad.defined()) grad.zero_();
        }
}

void Optimizer::step() {
    check_not_moved("step");
    if (needs_closure())
        throw UsageError(str(name(),
                             ": step() needs a closure that computes the loss and the gradients; "
                             "call step(closure)"));
    if (steps_in_backward()) return;
    if (hooks_) {
        const StepPlan plan = hooks_->before_step(*this);
        if (!plan.allowed) return;
        if (plan.scalars) set_scalars(*plan.scalars);
    }
    const profiler::Scope scope(name(), profiler::Category::optimizer);
    const NoGrad no_grad;
    if (scalars_.defined())
        skipped_.copy_(select(scalars_, 0, 2));
    else if (skipped_.defined())
        skipped_.zero_();
    fill_slots();
    if (!private_->updated.empty()) step_slots();
}

void Optimizer::step_one(const Tensor& param, std::size_t group, std::uint64_t place) {
    const NoGrad no_grad;
    clear_slots();
    add_slot(param, autograd::local_part(param).grad(), group, place);
    step_slots();
}

void Optimizer::step_slots() {
    const Device device = autograd::local_part(private_->updated[0]).device();
    if (scalars_.defined() && scalars_.device() != device)
        throw DeviceError(str(name(),
                              ": scalars must be on the device of the parameters: scalars are on ",
                              scalars_.device(), ", parameters are on ", device));
    fill_groups(device);
    const auto* scalars = scalars_.defined()
                              ? static_cast<const kernels::StepScalars*>(scalars_.raw_data())
                              : nullptr;
    update(device, private_->slots, scalars);
    finish_slots();
}

Tensor Optimizer::step(const std::function<Tensor()>& closure) {
    check_not_moved("step");
    if (hooks_ && !hooks_->allows_step(*this)) return {};
    return step_with_closure([&] {
        const GradMode recording(true);
        return closure();
    });
}

Tensor Optimizer::step_with_closure(const std::function<Tensor()>& closure) {
    Tensor loss = closure();
    step();
    return loss;
}

void Optimizer::push_options(bool all) {
    const std::vector<Tensor> params = parameters();
    if (params.empty()) return;
    upload_plan_.all = all;
    fill_groups(autograd::local_part(params[0]).device());
    upload_plan_.all = false;
}

void Optimizer::clear_slots() {
    private_->slots.clear();
    private_->updated.clear();
    private_->dense_copies.clear();
    private_->dense_grads.clear();
}

void Optimizer::fill_slots() {
    clear_slots();
    std::uint64_t index = 0;
    for (std::size_t g = 0; g < group_count(); ++g)
        for (const Tensor& param : group(g).params) {
            const std::uint64_t place = index++;
            if (Tensor grad = autograd::local_part(param).grad(); grad.defined())
                add_slot(param, std::move(grad), g, place);
        }
}

const std::vector<Tensor>& Optimizer::take_updated() {
    private_->dense_copies.clear();
    return private_->updated;
}

void Optimizer::add_slot(const Tensor& param, Tensor grad, std::size_t group, std::uint64_t place) {
    if (autograd::is_sharded(param) || autograd::slice_of(param) != nullptr) check_divided();
    const Tensor part = autograd::local_part(param);
    if (!private_->updated.empty())
        if (const Device other = autograd::local_part(private_->updated[0]).device();
            part.device() != other)
            throw DeviceError(str(name(), ": parameters must be on one device: they are on ", other,
                                  " and ", part.device()));
    kernels::Slot slot = slot_of(part, std::move(grad), group);
    slot.first_element = autograd::local_begin(param);
    slot.stochastic = is_half(part.dtype()) && this->group(group).stochastic_rounding;
    if (slot.stochastic) slot.seed = rounding_seed(group, place);
    if (needs_state(group) || slot.stochastic) add_state(slot, param, group);
    kernels::append(private_->slots, slot);
    private_->updated.push_back(param);
}

kernels::Slot Optimizer::slot_of(const Tensor& param, Tensor grad, std::size_t group) {
    if (grad.shape() != param.shape() || grad.device() != param.device())
        throw ShapeError(str(name(),
                             ": shape or device of a gradient and its parameter differ: gradient ",
                             grad.shape(), " on ", grad.device(), ", parameter ", param.shape(),
                             " on ", param.device()));
    Tensor values = param;
    if (!param.is_contiguous()) {
        values = contiguous(param);
        private_->dense_copies.emplace_back(param, values);
    }
    if (!grad.is_contiguous()) {
        grad = contiguous(grad);
        private_->dense_grads.push_back(grad);
    }
    kernels::Slot slot;
    slot.param = values.raw_data();
    slot.grad = grad.raw_data();
    slot.numel = param.numel();
    slot.group = static_cast<std::int32_t>(group);
    slot.param_dtype = param.dtype();
    slot.grad_dtype = grad.dtype();
    return slot;
}

bool Optimizer::needs_state(std::size_t group) const {
    for (std::size_t b = 0; b < std::tuple_size_v<decltype(ParamState::buffers)>; ++b)
        if (needs_buffer(group, b)) return true;
    return false;
}

void Optimizer::add_state(kernels::Slot& slot, const Tensor& param, std::size_t group) {
    const ParamState& state = prepare_state(param, group);
    for (std::size_t b = 0; b < std::size(slot.state); ++b)
        if (needs_buffer(group, b) && state.buffers[b].defined())
            slot.state[b] = state.buffers[b].raw_data();
    slot.step = static_cast<float*>(state.step.raw_data());
}

// Returns the seed of one parameter, derived from the group's seed so that parameters do not share
// random numbers. Chooses the group's seed if it is not set. Throws UsageError instead during a
// capture.
std::uint64_t Optimizer::rounding_seed(std::size_t group, std::uint64_t param) {
    std::optional<std::uint64_t>& seed = this->group(group).rounding_seed;
    const auto pair = [](const std::array<std::uint32_t, 4>& words) {
        return std::uint64_t{words[1]} << 32 | words[0];
    };
    if (!seed) {
        if (is_capturing())
            throw UsageError(str(name(),
                                 ": the first step chooses the seed of stochastic rounding and "
                                 "cannot be captured; take a step before the capture"));
        seed = pair(take_random(1).block(0)) >> 1;
    }
    return pair(kernels::Philox{.seed = *seed}.block(param));
}

// Returns the complete state of a parameter on its current device, with buffers of buffer_dtype().
// Throws UsageError if the state does not exist yet during a capture.
ParamState& Optimizer::prepare_state(const Tensor& param, std::size_t group) {
    const Tensor part = autograd::local_part(param);
    // Every replay would reset the state if its creation were captured.
    if (is_capturing() && !this->state(param))
        throw UsageError(str(name(),
                             ": the first step creates a parameter's state and cannot be "
                             "captured; take a step before the capture"));
    auto& states = private_->states;
    const auto found = states.find(param.impl().get());
    if (found != states.end()) {
        complete_state(found->second, part, group);
        return found->second;
    }
    // A new state is added when it is complete, so that an exception leaves the optimizer
    // unchanged.
    ParamState created;
    complete_state(created, part, group);
    return states.emplace(param.impl().get(), std::move(created)).first->second;
}

// Creates the missing parts of a state, and moves the existing parts to the current device of the
// parameter. Converts buffers to buffer_dtype(). Throws ShapeError if a buffer has a wrong number
// of elements.
void Optimizer::complete_state(ParamState& state, const Tensor& param, std::size_t group) const {
    if (!state.step.defined()) state.step = zeros({}, {.dtype = f32, .device = param.device()});
    state.step = state.step.to(param.device());
    for (std::size_t b = 0; b < state.buffers.size(); ++b) {
        if (!needs_buffer(group, b)) continue;
        const std::optional<Shape> shape =
            is_number(b) ? std::optional(Shape()) : buffer_shape(param, group, b);
        if (!shape) continue;
        const TensorOptions like = {.dtype = buffer_dtype(param, b), .device = param.device()};
        Tensor& buffer = state.buffers[b];
        if (!buffer.defined()) {
            buffer = is_number(b) ? zeros({}, like) : new_buffer(*shape, like.dtype, like.device);
            fill_buffer(buffer, param, group, b);
        }
        if (buffer.numel() != numel(*shape))
            throw ShapeError(str(name(), ": ", buffer_names()[b], " must be ", *shape,
                                 " for a parameter of shape ", param.shape(), ", not ",
                                 buffer.shape()));
        if (buffer.dtype() != like.dtype) buffer = buffer.to(like.dtype);
        if (buffer.device() != like.device) buffer = buffer.to(like.device);
    }
}

void Optimizer::offload_states(const std::string& folder) { private_->state_folder = folder; }

Tensor Optimizer::new_buffer(const Shape& shape, DType dtype, Device device) const {
    if (device.is_cpu() && !private_->state_folder.empty())
        return zeros_in_file(private_->state_folder, shape, dtype);
    return zeros(shape, {.dtype = dtype, .device = device});
}

const std::vector<Tensor>& Optimizer::copy_back() {
    // kernels::copy is used instead of Tensor::copy_, which allocates memory and could therefore
    // throw after the update.
    for (auto& [param, values] : private_->dense_copies)
        launch(param.device(),
               [&](auto& on) { kernels::copy(on, std::as_const(values).view(), param.view()); });
    private_->dense_copies.clear();
    return private_->updated;
}

void Optimizer::finish_slots() {
    copy_back();
    for (const Tensor& param : private_->updated) {
        param.impl()->storage->bump_version();
        if (autograd::is_sharded(param))
            autograd::local_part(param).impl()->storage->bump_version();
    }
    private_->dense_grads.clear();
}

void upload_rows(Device device, const UploadPlan& plan, kernels::GroupRows rows, bool changed,
                 Tensor* copy) {
    if (device.is_cuda()) {
        const std::int64_t bytes = rows.count * rows.size;
        const bool in_place = copy->defined() && copy->device() == device && copy->numel() == bytes;
        if (!in_place) *copy = empty({bytes}, {.dtype = u8, .device = device});
        if (!in_place || changed) copy->copy_(Tensor::from_blob(rows.data, {bytes}, u8));
        rows.data = static_cast<std::byte*>(copy->raw_data());
    } else {
        *copy = {};
    }
    if (!plan.row.defined()) return;
    launch(device, [&](auto& on) {
        kernels::take_rates(on, plan.rates.data<double>(), plan.row.data<std::int64_t>(), rows);
    });
}

}  // namespace axle::optim
