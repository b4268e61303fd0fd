#include "optim/grad_scaler.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/cuda/graph.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/step_state.h"
#include "optim/grad_table.h"

namespace axle::optim {
namespace {

double checked_scale(const char* name, double scale) {
    if (!(static_cast<float>(scale) > 0) || !std::isfinite(static_cast<float>(scale)))
        throw ValueError(
            str("GradScaler: ", name, " must be positive and finite as a float32: ", scale));
    return scale;
}
double checked_growth(double factor) {
    if (!(factor > 1) || std::isinf(factor))
        throw ValueError(str("GradScaler: growth_factor must be finite and above 1: ", factor));
    return factor;
}
double checked_backoff(double factor) {
    if (!(factor > 0 && factor < 1))
        throw ValueError(str("GradScaler: backoff_factor must be above 0 and below 1: ", factor));
    return factor;
}
int checked_interval(std::int64_t interval) {
    if (interval < 1 || interval > INT32_MAX)
        throw ValueError(str("GradScaler: growth_interval must be from 1 to 2^31 - 1: ", interval));
    return static_cast<int>(interval);
}

kernels::StepScalars* raw(const Tensor& scalars) {
    return static_cast<kernels::StepScalars*>(scalars.raw_data());
}

}  // namespace

struct GradScaler::PerOptimizer {
    ProgressMap progress;
    std::unordered_map<const Optimizer*, Tensor> scalars;  // each contains a kernels::StepScalars
};

GradScaler::GradScaler(GradScalerOptions options)
    : options_(options), of_(make_owning<PerOptimizer>()) {
    checked_scale("init_scale", options.init_scale);
    checked_growth(options.growth_factor);
    checked_backoff(options.backoff_factor);
    checked_interval(options.growth_interval);
}

GradScaler::~GradScaler() = default;
GradScaler::GradScaler(GradScaler&& other) noexcept = default;
GradScaler& GradScaler::operator=(GradScaler&& other) noexcept = default;

const GradScaler::ProgressMap& GradScaler::progress() const { return of_->progress; }

void GradScaler::set_found_inf_hook(std::function<void(const Tensor& found_inf)> hook) {
    hook_ = std::move(hook);
}

void GradScaler::to(Device device) {
    if (!options_.enabled || (scale_.defined() && scale_.device() == device)) return;
    const NoGrad no_grad;
    scale_ = scale_.defined() ? scale_.to(device)
                              : full({}, options_.init_scale, {.dtype = f32, .device = device});
    growth_tracker_ = growth_tracker_.defined()
                          ? growth_tracker_.to(device)
                          : full({}, growth_tracker_at_start_, {.dtype = i32, .device = device});
    found_inf_ =
        found_inf_.defined() ? found_inf_.to(device) : zeros({}, {.dtype = f64, .device = device});
}

Tensor GradScaler::scale(const Tensor& loss) {
    if (!options_.enabled) return loss;
    to(loss.device());
    return loss * scale_;
}

const Tensor& GradScaler::scalars_of(const Optimizer& optimizer) {
    Tensor& scalars = of_->scalars[&optimizer];
    if (scalars.defined() && scalars.device() == scale_.device()) return scalars;
    // The memory allocated here must not belong to a captured graph.
    if (is_capturing())
        throw UsageError(
            "GradScaler: the first step of an optimizer cannot be captured; take a step before the "
            "capture");
    scalars = zeros({3}, {.dtype = f64, .device = scale_.device()});
    return scalars;
}

// Checks whether the gradients are finite and computes the scalars of the optimizer's next step. If
// in_place is true, also unscales the gradients, and the step does not unscale them again.
void GradScaler::check_gradients(const char* op, Optimizer& optimizer, bool in_place) {
    const profiler::OpScope scope(op);
    const NoGrad no_grad;
    GradTable grads(op, optimizer.parameters());
    if (!scale_.defined() || !grads.runs().empty()) to(grads.device());
    const Tensor& scalars = scalars_of(optimizer);
    kernels::StepScalars* const s = raw(scalars);
    const Tensor found = select(scalars, 0, 2);
    launch(scale_.device(), [&](auto& on) {
        kernels::begin_unscale(on, scale_.data<float>(), s);
        kernels::find_non_finite(on, grads.runs(), &s->found_inf);
    });
    if (hook_) hook_(found);
    if (in_place) {
        launch(scale_.device(), [&](auto& on) { kernels::scale(on, grads.runs(), &s->inv_scale); });
        select(scalars, 0, 0).fill_(1);
        grads.changed();
    }
    found_inf_.copy_(has_checked_gradients() ? maximum(found_inf_, found) : found);
    of_->progress[&optimizer].checked = true;
}

void GradScaler::unscale_(Optimizer& optimizer) {
    if (!options_.enabled) return;
    switch (of_->progress[&optimizer].stage) {
        case Stage::ready:
            break;
        case Stage::unscaled:
            throw UsageError(
                "GradScaler: unscale_() has already been called on this optimizer since the last "
                "update(); call it once in each step");
        case Stage::stepped:
            throw UsageError(
                "GradScaler: unscale_() must be called before step(): step() has been called; call "
                "update() first");
    }
    for (const Tensor& param : optimizer.parameters())
        if (const Tensor grad = autograd::local_part(param).grad();
            grad.defined() && grad.dtype() == f16)
            throw ValueError(
                str("GradScaler: unscale_() cannot unscale float16 gradients, whose range is too "
                    "small: a gradient is ",
                    grad.shape(), "; keep parameters in float32"));
    check_gradients("unscale_", optimizer, true);
    of_->progress[&optimizer].stage = Stage::unscaled;
}

Tensor GradScaler::before_step(Optimizer& optimizer) {
    if (!options_.enabled) return {};
    Progress& progress = of_->progress[&optimizer];
    if (progress.stage == Stage::stepped)
        throw UsageError(
            "GradScaler: step() has already been called on this optimizer since the last "
            "update(); call update() after each step");
    if (progress.stage == Stage::ready) check_gradients("unscale", optimizer, false);
    progress.stage = Stage::stepped;
    progress.stepped = true;
    return scalars_of(optimizer);
}

void GradScaler::step(Optimizer& optimizer) {
    if (!options_.enabled) return optimizer.step();
    const std::vector<Tensor> params = optimizer.parameters();
    if (std::ranges::none_of(params, autograd::has_gradient))
        throw UsageError(
            "GradScaler: step(): no parameter of the optimizer has a gradient; call "
            "scale(loss).backward() first");
    optimizer.set_scalars(before_step(optimizer));
    optimizer.step();
    optimizer.set_scalars({});
}

void GradScaler::forget_progress(const Optimizer& optimizer) {
    if (const auto found = of_->progress.find(&optimizer); found != of_->progress.end())
        found->second.stage = Stage::ready;
}

void GradScaler::forget(const Optimizer& optimizer) {
    of_->progress.erase(&optimizer);
    of_->scalars.erase(&optimizer);
}

void GradScaler::set_progress(ProgressMap progress) { of_->progress = std::move(progress); }

bool GradScaler::has_checked_gradients() const {
    return std::ranges::any_of(of_->progress, [](const auto& of) { return of.second.checked; });
}

void GradScaler::update() {
    if (!options_.enabled) return;
    if (!has_checked_gradients())
        throw UsageError(
            "GradScaler: update(): no gradients were checked since the last update(); call step() "
            "or unscale_() first");
    const kernels::ScaleRule rule = {options_.growth_factor, options_.backoff_factor,
                                     options_.growth_interval};
    launch(scale_.device(), [&](auto& on) {
        kernels::update_scale(on, rule, found_inf_.data<double>(), scale_.data<float>(),
                              growth_tracker_.data<std::int32_t>());
    });
    of_->progress.clear();
}

void GradScaler::update(double new_scale) {
    if (!options_.enabled) return;
    checked_scale("new_scale", new_scale);
    if (scale_.defined())
        scale_.fill_(new_scale);
    else
        options_.init_scale = new_scale;
    of_->progress.clear();
}

double GradScaler::get_scale() const {
    if (!options_.enabled) return 1;
    return scale_.defined() ? scale_.item() : static_cast<float>(options_.init_scale);
}

void GradScaler::set_growth_factor(double factor) {
    options_.growth_factor = checked_growth(factor);
}
void GradScaler::set_backoff_factor(double factor) {
    options_.backoff_factor = checked_backoff(factor);
}
void GradScaler::set_growth_interval(int interval) {
    options_.growth_interval = checked_interval(interval);
}

Tree GradScaler::state_dict() const {
    if (!options_.enabled) return Tree::map();
    const std::int64_t tracker =
        growth_tracker_.defined() ? growth_tracker_.item_int() : growth_tracker_at_start_;
    return {{"scale", get_scale()},
            {"growth_factor", options_.growth_factor},
            {"backoff_factor", options_.backoff_factor},
            {"growth_interval", options_.growth_interval},
            {"_growth_tracker", tracker}};
}

// Copies the values into the existing tensors, because captured steps contain their addresses.
void GradScaler::load_state_dict(const Tree& state) {
    if (!options_.enabled) return;
    if (state.empty())
        throw ValueError(
            "GradScaler: load_state_dict: the state is empty; it was saved by a disabled scaler");
    GradScalerOptions options = options_;
    options.init_scale = checked_scale("scale", state["scale"].number());
    options.growth_factor = checked_growth(state["growth_factor"].number());
    options.backoff_factor = checked_backoff(state["backoff_factor"].number());
    options.growth_interval = checked_interval(state["growth_interval"].integer());
    const std::int64_t tracker = state["_growth_tracker"].integer();
    if (tracker < 0 || tracker > INT32_MAX)
        throw ValueError(str(
            "GradScaler: load_state_dict: _growth_tracker must be from 0 to 2^31 - 1: ", tracker));
    options_ = options;
    growth_tracker_at_start_ = static_cast<int>(tracker);
    of_->progress.clear();
    if (!scale_.defined()) return;
    scale_.fill_(options.init_scale);
    growth_tracker_.fill_(tracker);
}

}  // namespace axle::optim
