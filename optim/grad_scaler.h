// Loss scaling for training in f16, as torch.amp.GradScaler:
//
//     GradScaler scaler;
//     scaler.scale(loss).backward();
//     scaler.unscale_(optimizer);                // only where the gradients are looked at, to clip
//     optim::clip_grad_norm_(params, 1);
//     scaler.step(optimizer);                    // nothing where a gradient isn't finite
//     scaler.update();                           // once, behind all optimizers
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

#include "core/tensor.h"
#include "core/tree/tree.h"
#include "optim/optimizer.h"

namespace axle::inline v0::optim {

struct GradScalerOptions {
    double init_scale = 65536;
    double growth_factor = 2;     // of the scale after growth_interval steps that were not skipped
    double backoff_factor = 0.5;  // of the scale after one that was
    int growth_interval = 2000;
    bool enabled = true;  // false: nothing is scaled, step() is the optimizer's
};

// The scale, the count of steps since it changed and what has been found live on the device of the
// losses, which must be that of the parameters; only get_scale() and state_dict() read them. An
// optimizer's gradients are unscaled in its update, in registers, unless unscale_() does it before.
//
// Unlike PyTorch's, 1 / scale is not rounded to f32, which f64 gradients would show.
class GradScaler {
  public:
    // ValueError for a scale that is no positive number, growth_factor <= 1, backoff_factor >= 1 or
    // an interval below 1.
    explicit GradScaler(GradScalerOptions options = {});

    // loss * scale
    Tensor scale(const Tensor& loss);
    // Divides the gradients by the scale in place and notes whether all of them are finite. Once
    // between two updates, and before step() (UsageError). ValueError for f16 gradients, which
    // can't hold what comes out.
    void unscale_(Optimizer& optimizer);
    // optimizer.step() with gradients unscaled, or nothing where one of them isn't finite: then
    // optimizer.step_was_skipped(). Once between two updates; UsageError where no parameter has a
    // gradient.
    void step(Optimizer& optimizer);
    // Backs off or grows, by what any optimizer has found since the last update. UsageError where
    // none has looked.
    void update();
    // Sets the scale instead.
    void update(double new_scale);

    bool is_enabled() const { return options_.enabled; }
    double get_scale() const;  // 1 where not enabled
    double get_growth_factor() const { return options_.growth_factor; }
    double get_backoff_factor() const { return options_.backoff_factor; }
    int get_growth_interval() const { return options_.growth_interval; }
    void set_growth_factor(double factor);
    void set_backoff_factor(double factor);
    void set_growth_interval(int interval);

    // PyTorch's names: scale, growth_factor, backoff_factor, growth_interval, _growth_tracker. An
    // empty map where not enabled.
    Tree state_dict() const;
    // ValueError for an empty one, which comes from a scaler that was not enabled.
    void load_state_dict(const Tree& state);

    // Moves the state; the first loss does so too.
    void to(Device device);
    // For gradients that are parts of larger ones: called with each optimizer's found_inf (one f64,
    // 0 or 1), to be made that of all parts, as by an all-reduce of the maximum.
    void set_found_inf_hook(std::function<void(const Tensor& found_inf)> hook) {
        hook_ = std::move(hook);
    }

    // --- for who calls update() and the optimizers' own step(), as an OptimizerGate does
    enum class Stage : std::uint8_t { ready, unscaled, stepped };
    struct Progress {
        Stage stage = Stage::ready;
        bool looked = false, stepped = false;  // since the last update
        bool operator==(const Progress&) const = default;
    };
    using ProgressMap = std::unordered_map<const Optimizer*, Progress>;

    // What step() does before it calls the optimizer's. That stays with its scalars.
    void before_step(Optimizer& optimizer);
    // The optimizer's gradients are new ones, though no update came in between.
    void begin_anew(const Optimizer& optimizer);
    // Whether there is something to update by.
    bool has_looked() const;
    // What is known on the host. Replays of captured steps don't change it.
    const ProgressMap& progress() const { return progress_; }
    void set_progress(ProgressMap progress) { progress_ = std::move(progress); }

  private:
    void look(const char* op, Optimizer& optimizer, bool in_place);
    const Tensor& scalars_of(const Optimizer& optimizer);

    GradScalerOptions options_;
    Tensor scale_, growth_tracker_;  // f32, i32; undefined before there is a device
    Tensor found_inf_;               // f64: of all that have looked since the last update
    ProgressMap progress_;
    std::unordered_map<const Optimizer*, Tensor> scalars_;  // memory of kernels::StepScalars
    std::function<void(const Tensor&)> hook_;
    int growth_tracker_at_start_ = 0;
};

}  // namespace axle::inline v0::optim
