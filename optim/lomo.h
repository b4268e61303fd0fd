// LOMO and AdaLomo: optimizers that update each parameter during backward, as soon as its gradient
// is final, and then free the gradient. Therefore only few gradients are in memory at any time.
//
//     optim::Lomo lomo(model.parameters(), {.clip_grad_norm = 1.0});
//     lomo.fused_backward(loss, 1e-3);   // instead of loss.backward() and step()
//
// Lv et al., "Full Parameter Fine-tuning for Large Language Models with Limited Resources",
// arXiv:2306.09782; Lv et al., "AdaLomo: Low-memory Optimization with Adaptive Learning Rate",
// arXiv:2310.10195.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/autograd/autograd.h"
#include "optim/optimizer.h"

namespace axle::optim {

// Base class of Lomo and AdaLomo, with one parameter group. The constructors of both classes throw
// ValueError for an empty list, for parameters that are undefined, repeated or not leaves, and for
// options out of range. step() does nothing. Gradients of a plain backward() are kept; the next
// fused_backward() adds its gradients to them and applies the sum. Gradients that a rule computes
// in a nested backward pass are applied when the outer pass ends.
class FusedOptimizer : public Optimizer {
  public:
    // Differentiates the loss and updates the parameters that then have a gradient, with the
    // learning rate lr, which replaces the rate of the options. If a parameter is sharded, applies
    // the gradients after the pass. Otherwise, with clip_grad_norm, runs two passes over the graph,
    // because the norm of all gradients is needed before the first update. With two passes, throws
    // UsageError if a leaf of the graph already has a gradient. Discards the gradients that the
    // first pass adds to leaves of other optimizers. Throws UsageError during a graph capture and
    // if the optimizer cannot update sharded parameters or slices (AdaLomo), ValueError unless lr
    // is 0 or more, and the errors of autograd::backward().
    void fused_backward(const Tensor& loss, double lr) { run({this}, loss, lr, false); }
    // Does the same for several optimizers at once, each of which clips by the norm of its own
    // gradients. If `at_end` is true, runs one pass and applies the gradients after it; data
    // parallel training needs this, because it averages the gradients during the pass.
    static void fused_backward(const std::vector<FusedOptimizer*>& optimizers, const Tensor& loss,
                               double lr, bool at_end = false) {
        run(optimizers, loss, lr, at_end);
    }

    std::size_t group_count() const override { return 1; }
    bool has_momentum() const override { return false; }
    GroupRef group(std::size_t) override {
        return {params_,        lr_,          no_momentum_, initial_lr_, stochastic_rounding_,
                rounding_seed_, weight_decay_};
    }

  protected:
    struct Settings {
        double lr;
        std::optional<double> clip_grad_norm, clip_grad_value;
        double weight_decay;
    };
    // Initializes the optimizer. Constructors of derived classes must call this function. Throws
    // ValueError for settings out of range, for an empty list, and for parameters that are
    // undefined, repeated or not leaves.
    void set_up(std::vector<Tensor> params, const Settings& settings);

    bool steps_in_backward() const final { return true; }
    // Updates a parameter with its gradient, which is already clipped by value. `place` is the
    // index of the parameter.
    virtual void apply(const Tensor& param, std::uint64_t place) = 0;
    // Returns the factor that clips the gradients by norm, a 0-d f64 tensor. The tensor is
    // undefined if this pass does not clip by norm.
    const Tensor& clip_factor() const { return clip_factor_; }

    std::vector<NamedOption> options(std::size_t group) override;

    double lr_ = 0, weight_decay_ = 0;
    bool stochastic_rounding_ = false;

  private:
    static void run(const std::vector<FusedOptimizer*>& optimizers, const Tensor& loss, double lr,
                    bool at_end);
    static void measure(const std::vector<FusedOptimizer*>& optimizers, const Tensor& loss);
    // A function that is called for one parameter; `place` is its index.
    using Each = std::function<void(FusedOptimizer& optimizer, std::size_t place)>;
    static std::vector<autograd::HookHandle> when_final(
        const std::vector<FusedOptimizer*>& optimizers, const Each& f);
    static void for_remaining(const std::vector<FusedOptimizer*>& optimizers, const Each& f);
    void begin(double lr);
    void clip_to(const Tensor& norm);
    void apply_and_free(const Tensor& param, std::uint64_t place);

    std::vector<Tensor> params_;
    std::optional<double> clip_grad_norm_, clip_grad_value_;
    std::optional<double> initial_lr_;
    std::optional<std::uint64_t> rounding_seed_;
    double no_momentum_ = 0;
    std::vector<Tensor> norms_;  // used during the measuring pass
    Tensor clip_factor_;
};

// lr and weight_decay must be 0 or more, and the limits of clipping positive. Without a limit,
// gradients are not clipped.
struct LomoOptions {
    double lr = 1e-3;                            // fused_backward() replaces it
    std::optional<double> clip_grad_norm = {};   // maximum norm of all gradients as one vector
    std::optional<double> clip_grad_value = {};  // maximum absolute value of gradient elements
    double weight_decay = 0;
    bool stochastic_rounding = false;  // for 16-bit parameters (optim/optimizer.h)
};

// The LOMO optimizer: p -= lr (g + weight_decay p). It has no state, except the step counts of
// 16-bit parameters if stochastic_rounding is true.
class Lomo : public FusedOptimizer {
  public:
    explicit Lomo(std::vector<Tensor> params, LomoOptions options = {});

  protected:
    const char* name() const override { return "Lomo"; }
    std::span<const char* const> buffer_names() const override { return {}; }
    bool needs_buffer(std::size_t, std::size_t) const override { return false; }
    bool saves_step() const override { return false; }
    void fill_groups(Device device) override;
    void update(Device device, std::span<const kernels::Slot> slots,
                const kernels::StepScalars* scalars) override;
    void apply(const Tensor& param, std::uint64_t place) override;

  private:
    GroupTable<kernels::SgdGroup> table_;
};

// The ranges of LomoOptions apply, and clip_threshold must be positive.
struct AdaLomoOptions {
    double lr = 1e-3;  // fused_backward() replaces it
    // The term added to squares, and the minimum scale of a parameter.
    std::array<double, 2> eps = {1e-30, 1e-3};
    double clip_threshold = 1;  // limit of the root mean square of an update
    double decay_rate = -0.8;
    std::optional<double> clip_grad_norm = {};   // as in LomoOptions
    std::optional<double> clip_grad_value = {};  // as in LomoOptions
    double weight_decay = 0;
};

// The AdaLomo optimizer. Step t computes, with b = 1 - t^decay_rate and s = g^2 + eps[0]:
//     v = b v + (1 - b) s            (matrices: r and c are such averages of the mean of s in
//                                     each row and in each column, and v = r c^T / mean(r))
//     u = g / sqrt(v),  u /= max(1, rms(u) / clip_threshold)
//     rate = lr max(eps[1], rms(p)),  p = p (1 - rate weight_decay) - rate u
// The saved state contains "step", and r as "exp_avg_sq_row" and c as "exp_avg_sq_col", or v as
// "exp_avg_sq" if the parameter has fewer than two dimensions. "Matrices" are all other parameters;
// r and c belong to their last two dimensions.
class AdaLomo : public FusedOptimizer {
  public:
    explicit AdaLomo(std::vector<Tensor> params, AdaLomoOptions options = {});

  protected:
    const char* name() const override { return "AdaLomo"; }
    std::vector<NamedOption> options(std::size_t group) override;
    std::span<const char* const> buffer_names() const override;
    bool needs_buffer(std::size_t, std::size_t buffer) const override { return buffer < 3; }
    std::optional<Shape> buffer_shape(const Tensor& param, std::size_t,
                                      std::size_t buffer) const override;
    // These functions are empty, because apply() computes the update with tensor ops.
    void fill_groups(Device) override {}
    void update(Device, std::span<const kernels::Slot>, const kernels::StepScalars*) override {}

    void apply(const Tensor& param, std::uint64_t place) override;
    void check_divided() const override;

  private:
    Tensor update_of(const Tensor& gradient, ParamState& state) const;

    AdaLomoOptions options_;
};

}  // namespace axle::optim
