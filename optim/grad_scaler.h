// Loss scaling for training in f16, like torch.amp.GradScaler:
//
//     GradScaler scaler;
//     scaler.scale(loss).backward();
//     scaler.unscale_(optimizer);                // only needed before clipping
//     optim::clip_grad_norm_(params, 1);
//     scaler.step(optimizer);                    // skipped if a gradient is not finite
//     scaler.update();                           // once, after all optimizers
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "core/memory/owning_ptr.h"
#include "core/tensor.h"
#include "core/tree/tree.h"
#include "optim/grad_scaler_options.h"
#include "optim/optimizer.h"

namespace axle::optim {

// A loss scaler. The scale, its step counter and found_inf (1 if a gradient was not finite) are
// scalars on the device of the losses. Losses and parameters must be on the same device. A disabled
// scaler does nothing, except that step() calls optimizer.step(). Only get_scale() and state_dict()
// wait for the device, because they read the scalars. The update kernel of the optimizer unscales
// the gradients, unless unscale_() has already done so.
//
// Unlike PyTorch, Axle does not round 1 / scale to f32, because the rounding would change f64
// gradients.
class GradScaler {
  public:
    // Throws ValueError unless init_scale is a positive f32, growth_factor is finite and above 1,
    // backoff_factor is between 0 and 1 (exclusive), and growth_interval is at least 1.
    explicit GradScaler(GradScalerOptions options = {});
    ~GradScaler();
    GradScaler(GradScaler&& other) noexcept;
    GradScaler& operator=(GradScaler&& other) noexcept;

    // Returns loss * scale, or the loss itself if the scaler is disabled.
    Tensor scale(const Tensor& loss);
    // Divides the gradients by the scale and records whether all gradients are finite. Throws
    // UsageError if unscale_() is called twice for an optimizer between two updates, after step(),
    // or in a graph capture before the first step of the optimizer. Throws ValueError for f16
    // gradients, because f16 cannot represent the results, and DeviceError if the gradients are on
    // several devices.
    void unscale_(Optimizer& optimizer);
    // Runs optimizer.step() with unscaled gradients. If a gradient is not finite, the step changes
    // nothing and optimizer.step_was_skipped() returns true. Throws UsageError if step() is called
    // twice for an optimizer between two updates, if no parameter has a gradient, or if the first
    // step of an optimizer is captured in a graph. Also throws DeviceError if the gradients are on
    // several devices, and the errors of Optimizer::step().
    void step(Optimizer& optimizer);
    // Multiplies the scale by backoff_factor if any gradient checked since the last update was not
    // finite. Otherwise counts the update: after growth_interval such updates in a row, multiplies
    // the scale by growth_factor, unless the result exceeds f32, and counts from 0 again. Throws
    // UsageError if no gradients were checked.
    void update();
    // Sets the scale to new_scale, and forgets the gradients checked since the last update. Does
    // not count as an update without a skip. Throws ValueError unless new_scale is a positive f32.
    void update(double new_scale);

    bool is_enabled() const { return options_.enabled; }
    double get_scale() const;  // 1 if disabled
    double get_growth_factor() const { return options_.growth_factor; }
    double get_backoff_factor() const { return options_.backoff_factor; }
    int get_growth_interval() const { return options_.growth_interval; }
    // The setters throw ValueError for values that the constructor does not allow.
    void set_growth_factor(double factor);
    void set_backoff_factor(double factor);
    void set_growth_interval(int interval);

    // Returns the state with PyTorch's names: scale, growth_factor, backoff_factor,
    // growth_interval, _growth_tracker. Returns an empty map if the scaler is disabled.
    Tree state_dict() const;
    // Loads a state from state_dict(), or does nothing if this scaler is disabled. Throws
    // ValueError for the empty state of a disabled scaler and for values of another type or out of
    // range, and IndexError if a value is missing.
    void load_state_dict(const Tree& state);

    // Creates the state on a device, or moves the state there. scale() moves it to the device of
    // the loss, and a check of gradients to the device of the gradients.
    void to(Device device);
    // Sets a hook for sharded gradients. It is called with found_inf of each optimizer, an f64
    // tensor with the element 0 or 1. The hook must replace the element by the maximum over all
    // shards, for example with an all-reduce.
    void set_found_inf_hook(std::function<void(const Tensor& found_inf)> hook);

    // --- for OptimizerHooks, which call update() and the optimizers' own step()
    enum class Stage : std::uint8_t { ready, unscaled, stepped };
    struct Progress {
        Stage stage = Stage::ready;
        bool checked = false, stepped = false;  // since the last update
        bool operator==(const Progress&) const = default;
    };
    using ProgressMap = std::unordered_map<const Optimizer*, Progress>;

    // Checks whether the gradients are finite, unless unscale_() has done so, and returns the
    // scalars that the optimizer's step must apply (OptimizerHooks::before_step). Returns an
    // undefined tensor if the scaler is disabled. Throws UsageError if step() was called for the
    // optimizer since the last update, or if its first step is captured in a graph, and DeviceError
    // if the gradients are on several devices.
    Tensor before_step(Optimizer& optimizer);
    // Marks the optimizer as not unscaled and not stepped. Called if the optimizer has new
    // gradients although update() was not called.
    void forget_progress(const Optimizer& optimizer);
    // Removes all data about an optimizer, which may be destroyed already.
    void forget(const Optimizer& optimizer);
    // Returns whether gradients were checked since the last update, so that update() is allowed.
    bool has_checked_gradients() const;
    // The progress of each optimizer on the host. Replays of captured steps do not change it.
    const ProgressMap& progress() const;
    void set_progress(ProgressMap progress);

  private:
    void check_gradients(const char* op, Optimizer& optimizer, bool in_place);
    const Tensor& scalars_of(const Optimizer& optimizer);

    GradScalerOptions options_;
    Tensor scale_, growth_tracker_;  // f32 and i32; undefined until the device is known
    Tensor found_inf_;               // f64, the maximum of all checks since the last update
    struct PerOptimizer;
    OwningPtr<PerOptimizer> of_;
    std::function<void(const Tensor&)> hook_;
    int growth_tracker_at_start_ = 0;
};

}  // namespace axle::optim
