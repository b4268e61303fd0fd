// LOMO and AdaLomo: optimizers that update each parameter while backward runs, as soon as its
// gradient is final, and forget the gradient at once, so that hardly any are in memory together.
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

namespace axle::inline v0::optim {

// One group. step() does nothing, and backward() without fused_backward() leaves gradients, which
// the next fused_backward() adds to and applies. What the backward rule of an op leaves in a pass
// of its own is applied when the outer pass is over.
class FusedOptimizer : public Optimizer {
  public:
    // Differentiates the loss and updates what it reaches. With clip_grad_norm there are two passes
    // over the graph, for no gradient can be applied before the norm of all is known; then
    // gradients from before are a UsageError, and what the first pass leaves in other leaves is
    // forgotten. lr becomes that of the group. UsageError while a graph is captured.
    void fused_backward(const Tensor& loss, double lr) { run({this}, loss, lr, false); }
    // One for several optimizers. With `at_end`, gradients are applied when the pass is over: for
    // those that are averaged over processes while it runs, and lie in buckets anyway.
    static void fused_backward(const std::vector<FusedOptimizer*>& optimizers, const Tensor& loss,
                               double lr, bool at_end = false) {
        run(optimizers, loss, lr, at_end);
    }

    std::size_t group_count() const override { return 1; }
    GroupRef group(std::size_t) override {
        return {params_, lr_, no_momentum_, initial_lr_, stochastic_rounding_, rounding_seed_};
    }

  protected:
    struct Settings {
        double lr;
        std::optional<double> clip_grad_norm, clip_grad_value;
        double weight_decay;
    };
    // For constructors, once the options are in place: ValueError for what they may not be.
    void set_up(std::vector<Tensor> params, const Settings& settings);

    bool steps_in_backward() const final { return true; }
    // Updates the place-th parameter, which has a gradient, clipped by value.
    virtual void apply(const Tensor& param, std::uint64_t place) = 0;
    // Where gradients are clipped by norm: what they are multiplied by in this pass. f64, 0-d.
    const Tensor& clip_factor() const { return clip_factor_; }

    std::vector<NamedOption> options(std::size_t group) override;

    double lr_ = 0, weight_decay_ = 0;
    bool stochastic_rounding_ = false;

  private:
    static void run(const std::vector<FusedOptimizer*>& optimizers, const Tensor& loss, double lr,
                    bool at_end);
    static void measure(const std::vector<FusedOptimizer*>& optimizers, const Tensor& loss);
    // Called with a parameter by its place.
    using Each = std::function<void(FusedOptimizer& optimizer, std::size_t place)>;
    static std::vector<autograd::HookHandle> when_final(
        const std::vector<FusedOptimizer*>& optimizers, const Each& f);
    static void for_rest(const std::vector<FusedOptimizer*>& optimizers, const Each& f);
    void begin(double lr);
    void clip_to(const Tensor& norm);
    void apply_and_forget(const Tensor& param, std::uint64_t place);

    std::vector<Tensor> params_;
    std::optional<double> clip_grad_norm_, clip_grad_value_;
    std::optional<double> initial_lr_;
    std::optional<std::uint64_t> rounding_seed_;
    double no_momentum_ = 0;
    std::vector<Tensor> norms_;  // while a pass measures
    Tensor clip_factor_;
};

struct LomoOptions {
    double lr = 1e-3;
    std::optional<double> clip_grad_norm = {};  // of all gradients as one vector
    std::optional<double> clip_grad_value = {};
    double weight_decay = 0;
    bool stochastic_rounding = false;  // of 16-bit parameters (optim/optimizer.h)
};

// p -= lr (g + weight_decay p). No state, but steps where rounding is stochastic.
class Lomo : public FusedOptimizer {
  public:
    explicit Lomo(std::vector<Tensor> params, LomoOptions options = {});

  protected:
    const char* name() const override { return "Lomo"; }
    std::span<const char* const> buffer_names() const override { return {}; }
    std::size_t buffers_needed(std::size_t) const override { return 0; }
    bool saves_step() const override { return false; }
    void fill_groups(Device device) override;
    void update(Device device, std::span<const kernels::Slot> slots,
                const kernels::StepScalars* scalars) override;
    void apply(const Tensor& param, std::uint64_t place) override;

  private:
    GroupTable<kernels::SgdGroup> table_;
};

struct AdaLomoOptions {
    double lr = 1e-3;
    std::array<double, 2> eps = {1e-30, 1e-3};  // added to squares; the least scale of a parameter
    double clip_threshold = 1;                  // of an update's root mean square
    double decay_rate = -0.8;
    std::optional<double> clip_grad_norm = {};
    std::optional<double> clip_grad_value = {};
    double weight_decay = 0;
};

// In step t of a parameter, with b = 1 - t^decay_rate and s = g^2 + eps[0]:
//     v = b v + (1 - b) s            (of a matrix: the means over rows and over columns, r and c,
//                                     and v = r c^T / mean(r))
//     u = g / sqrt(v),  u /= max(1, rms(u) / clip_threshold)
//     rate = lr max(eps[1], rms(p)),  p = p (1 - rate weight_decay) - rate u
// State: "exp_avg_sq_row" and "exp_avg_sq_col", of a vector "exp_avg_sq".
class AdaLomo : public FusedOptimizer {
  public:
    explicit AdaLomo(std::vector<Tensor> params, AdaLomoOptions options = {});

  protected:
    const char* name() const override { return "AdaLomo"; }
    std::vector<NamedOption> options(std::size_t group) override;
    std::span<const char* const> buffer_names() const override;
    std::size_t buffers_needed(std::size_t) const override { return 3; }
    std::optional<Shape> buffer_shape(const Tensor& param, std::size_t buffer) const override;
    // It is written in tensors' operations, and has no kernel.
    void fill_groups(Device) override {}
    void update(Device, std::span<const kernels::Slot>, const kernels::StepScalars*) override {}
    void apply(const Tensor& param, std::uint64_t place) override;

  private:
    Tensor update_of(const Tensor& gradient, ParamState& state) const;

    AdaLomoOptions options_;
};

}  // namespace axle::inline v0::optim
