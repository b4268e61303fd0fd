#include "optim/lomo.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "core/cuda/graph.h"
#include "core/launch.h"
#include "core/ops.h"
#include "optim/clip.h"

namespace axle::optim {
namespace {

constexpr const char* kAdaLomoBuffers[] = {"exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq"};

Tensor rms(const Tensor& x) { return sqrt(mean(x * x)); }

}  // namespace

void FusedOptimizer::set_up(std::vector<Tensor> params, const Settings& settings) {
    const auto check = [&](bool valid, const char* what, double value) {
        if (!valid) throw ValueError(str(name(), ": ", what, ": ", value));
    };
    check(settings.lr >= 0, "lr must be 0 or more", settings.lr);
    check(settings.weight_decay >= 0, "weight_decay must be 0 or more", settings.weight_decay);
    for (const auto& [what, clip] :
         {std::pair("clip_grad_norm must be above 0", settings.clip_grad_norm),
          std::pair("clip_grad_value must be above 0", settings.clip_grad_value)})
        if (clip) check(*clip > 0, what, *clip);
    if (params.empty()) throw ValueError(str(name(), ": the list of parameters must not be empty"));
    check_params(params);
    params_ = std::move(params);
    lr_ = settings.lr, weight_decay_ = settings.weight_decay;
    clip_grad_norm_ = settings.clip_grad_norm, clip_grad_value_ = settings.clip_grad_value;
}

std::vector<NamedOption> FusedOptimizer::options(std::size_t) {
    return {{"lr", &lr_}, {"weight_decay", &weight_decay_}};
}

void FusedOptimizer::begin(double lr) {
    if (!(lr >= 0)) throw ValueError(str(name(), ": lr must be 0 or more: ", lr));
    if (is_capturing())
        throw UsageError(
            str(name(), ": updates during backward cannot be captured in a graph; use AdamW"));
    before_access();
    lr_ = lr;
    norms_.clear();
    clip_factor_ = {};
    set_scalars({});
}

void FusedOptimizer::clip_to(const Tensor& norm) {
    const NoGrad no_grad;
    clip_factor_ = clamp(*clip_grad_norm_ / (norm.to(f64) + 1e-6), std::nullopt, 1.0);
    const Tensor one = ones({}, {.dtype = f64, .device = norm.device()});
    set_scalars(stack({one, clip_factor_, zeros_like(one)}));
}

void FusedOptimizer::apply_and_free(const Tensor& param, std::uint64_t place) {
    const NoGrad no_grad;
    // A sharded parameter has no gradient here if its gradient is reduced after the hook.
    if (!autograd::local_part(param).grad().defined()) return;
    if (clip_grad_value_) optim::clip_grad_value_({param}, *clip_grad_value_);
    if (param.numel() > 0) apply(param, place);
    param.zero_grad();
}

// Registers a hook on every parameter; the hook calls f when the gradient of the parameter is
// final. The hook does nothing in a nested pass, because the outer pass can still add to the
// gradient; for_remaining() calls f for such gradients later.
std::vector<autograd::HookHandle> FusedOptimizer::when_final(
    const std::vector<FusedOptimizer*>& optimizers, const Each& f) {
    std::vector<autograd::HookHandle> hooks;
    const int depth = autograd::backward_depth() + 1;
    for (FusedOptimizer* optimizer : optimizers)
        for (std::size_t i = 0; i < optimizer->params_.size(); ++i)
            hooks.push_back(autograd::on_leaf_final(optimizer->params_[i],
                                                    [optimizer, i, depth, &f](const Tensor&) {
                                                        if (autograd::backward_depth() == depth)
                                                            f(*optimizer, i);
                                                    }));
    return hooks;
}

void FusedOptimizer::for_remaining(const std::vector<FusedOptimizer*>& optimizers, const Each& f) {
    for (FusedOptimizer* optimizer : optimizers)
        for (std::size_t i = 0; i < optimizer->params_.size(); ++i)
            if (autograd::has_gradient(optimizer->params_[i])) f(*optimizer, i);
}

// Runs the first of two passes, which computes the norms of the gradients and does not update
// parameters. Throws UsageError if a parameter already has a gradient.
void FusedOptimizer::measure(const std::vector<FusedOptimizer*>& optimizers, const Tensor& loss) {
    std::vector<Tensor> reached;
    const int depth = autograd::backward_depth() + 1;
    const auto record_reached = [&, thread = std::this_thread::get_id()](
                                    const std::vector<Tensor>& leaves) {
        if (std::this_thread::get_id() != thread) return;
        for (const Tensor& leaf : leaves) {
            if (!leaf.grad().defined())
                reached.push_back(leaf);
            else if (autograd::backward_depth() == depth)
                throw UsageError(str(
                    "fused_backward: with clip_grad_norm, no parameter may have a gradient yet: a "
                    "parameter of shape ",
                    leaf.shape(), " has one; call zero_grad() first"));
        }
    };
    const Each add_norm = [](FusedOptimizer& optimizer, std::size_t i) {
        const Tensor& param = optimizer.params_[i];
        if (optimizer.clip_grad_norm_) optimizer.norms_.push_back(get_total_norm({param}).to(f64));
        param.zero_grad();
    };
    {
        const auto begin = autograd::on_backward_begin(record_reached);
        const auto hooks = when_final(optimizers, add_norm);
        autograd::backward({loss}, {}, {.retain_graph = true});
    }
    const NoGrad no_grad;
    for_remaining(optimizers, add_norm);
    for (const Tensor& leaf : reached) leaf.zero_grad();
    for (FusedOptimizer* optimizer : optimizers) {
        const std::vector<Tensor> norms = std::exchange(optimizer->norms_, {});
        if (norms.empty()) continue;
        const Tensor all = stack(norms);
        optimizer->clip_to(sqrt(sum(all * all)));
    }
}

void FusedOptimizer::run(const std::vector<FusedOptimizer*>& optimizers, const Tensor& loss,
                         double lr, bool at_end) {
    const auto clips = [](const FusedOptimizer* o) { return o->clip_grad_norm_.has_value(); };
    const Each apply = [](FusedOptimizer& optimizer, std::size_t i) {
        optimizer.apply_and_free(optimizer.params_[i], i);
    };
    for (FusedOptimizer* optimizer : optimizers) {
        optimizer->begin(lr);
        const bool is_sharded = std::ranges::any_of(optimizer->params_, autograd::is_sharded);
        const bool is_divided = std::ranges::any_of(optimizer->params_, [](const Tensor& param) {
            return autograd::slice_of(param) != nullptr;
        });
        if (is_sharded || is_divided) optimizer->check_divided();
        at_end = at_end || is_sharded;
    }
    if (!at_end && std::ranges::any_of(optimizers, clips)) measure(optimizers, loss);
    {
        std::vector<autograd::HookHandle> hooks;
        if (!at_end) hooks = when_final(optimizers, apply);
        loss.backward();
    }
    if (at_end)
        for (FusedOptimizer* optimizer : optimizers)
            if (clips(optimizer)) optimizer->clip_to(get_total_norm(optimizer->params_));
    for_remaining(optimizers, apply);
}

// --- Lomo

Lomo::Lomo(std::vector<Tensor> params, LomoOptions options) {
    stochastic_rounding_ = options.stochastic_rounding;
    set_up(std::move(params),
           {options.lr, options.clip_grad_norm, options.clip_grad_value, options.weight_decay});
}

void Lomo::fill_groups(Device device) {
    table_.clear();
    table_.push_back({.lr = lr_, .weight_decay = weight_decay_});
    table_.upload_to(device, upload_plan());
}

void Lomo::update(Device device, std::span<const kernels::Slot> slots,
                  const kernels::StepScalars* scalars) {
    launch(device, [&](auto& on) { kernels::sgd(on, slots, table_.data(), scalars); });
}

void Lomo::apply(const Tensor& param, std::uint64_t place) { step_one(param, 0, place); }

// --- AdaLomo

AdaLomo::AdaLomo(std::vector<Tensor> params, AdaLomoOptions options) : options_(options) {
    if (!(options.clip_threshold > 0))
        throw ValueError(str("AdaLomo: clip_threshold must be above 0: ", options.clip_threshold));
    set_up(std::move(params),
           {options.lr, options.clip_grad_norm, options.clip_grad_value, options.weight_decay});
}

std::vector<NamedOption> AdaLomo::options(std::size_t group) {
    std::vector<NamedOption> all = FusedOptimizer::options(group);
    all.push_back({"eps", &options_.eps});
    all.push_back({"clip_threshold", &options_.clip_threshold});
    all.push_back({"decay_rate", &options_.decay_rate});
    return all;
}

std::span<const char* const> AdaLomo::buffer_names() const { return kAdaLomoBuffers; }

std::optional<Shape> AdaLomo::buffer_shape(const Tensor& param, std::size_t,
                                           std::size_t buffer) const {
    const bool is_matrix = param.dim() > 1;
    if (is_matrix == (buffer == 2)) return std::nullopt;
    Shape shape = param.shape();
    if (is_matrix) shape.erase(shape.size() - (buffer == 0 ? 1 : 2));
    return shape;
}

// Returns the update of a parameter before it is clipped and multiplied by the learning rate.
Tensor AdaLomo::update_of(const Tensor& gradient, ParamState& state) const {
    const Tensor new_weight = pow(state.step.to(gradient.dtype()), options_.decay_rate);
    const Tensor old_weight = 1.0 - new_weight;
    const Tensor square = gradient * gradient + options_.eps[0];
    const auto update_average = [&](Tensor& average, const Tensor& next) {
        return average.copy_(average * old_weight + next * new_weight);
    };
    if (gradient.dim() < 2) return gradient * rsqrt(update_average(state.buffers[2], square));
    const Tensor rows = update_average(state.buffers[0], mean(square, {-1}));
    const Tensor columns = update_average(state.buffers[1], mean(square, {-2}));
    return gradient *
           (rsqrt(rows / mean(rows, {-1}, true)).unsqueeze(-1) * rsqrt(columns).unsqueeze(-2));
}

void AdaLomo::check_divided() const {
    throw UsageError(
        "AdaLomo: parameters must not be sharded or divided among processes, because AdaLomo needs "
        "the rows and columns of whole matrices; use Lomo");
}

void AdaLomo::apply(const Tensor& param, std::uint64_t) {
    ParamState& state = prepare_state(param, 0);
    const DType wide = param.dtype() == f64 ? f64 : f32;
    Tensor gradient = param.grad().detach().to(wide);
    if (clip_factor().defined()) gradient = gradient * clip_factor().to(wide);
    state.step.copy_(state.step + 1.0);
    Tensor update = update_of(gradient, state);
    update = update / clamp(rms(update) / options_.clip_threshold, 1.0, std::nullopt);
    const Tensor values = param.detach().to(wide);
    const Tensor rate = lr_ * clamp(rms(values), options_.eps[1], std::nullopt);
    Tensor target = param.detach();
    target.copy_(values * (1.0 - rate * weight_decay_) - rate * update);
}

}  // namespace axle::optim
