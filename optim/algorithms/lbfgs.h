// LBFGS: a quasi-Newton method (Nocedal and Wright, Numerical Optimization, algorithm 7.5), as in
// torch.optim.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace axle::optim {

struct LBFGSOptions {
    double lr = 1;
    std::int64_t max_iter = 20;  // iterations in one step
    std::int64_t max_eval = 0;  // calls of the closure after which a step ends; 0: max_iter * 5 / 4
    double tolerance_grad = 1e-7;  // a step ends if no gradient element has a larger magnitude
    // A step ends if no parameter changes by more, the loss changes by less, or the slope in the
    // direction of the change is smaller.
    double tolerance_change = 1e-9;
    std::int64_t history_size = 100;
    std::optional<std::string> line_search_fn = std::nullopt;  // or "strong_wolfe"
    bool maximize = false;
    // Must be false, because LBFGS rounds parameters to nearest.
    bool stochastic_rounding = false;

    static constexpr const char* kName = "LBFGS";
    std::vector<NamedOption> named();
    // Throws ValueError unless lr and the tolerances are 0 or more, max_iter and history_size are
    // positive, max_eval is 0 or more, line_search_fn is "strong_wolfe" or nullopt, and
    // stochastic_rounding is false.
    void check(const char* op) const;
};

// The L-BFGS optimizer. A step needs a closure, which it calls several times:
//
//     optim::LBFGS optimizer(model.parameters(), {.line_search_fn = "strong_wolfe"});
//     optimizer.step([&] {
//         optimizer.zero_grad();
//         Tensor loss = mse_loss(model(x), y);
//         loss.backward();
//         return loss;
//     });
//
// There is one group of parameters, on one device. A parameter without a gradient counts as one
// whose gradient is zero. step() throws UsageError without a closure, if the closure returns an
// undefined tensor, with several groups, during a graph capture, with a GradScaler, and for
// parameters that are sharded or slices. If the closure throws, the parameters may have moved. The
// history has up to 2 history_size times the elements of the parameters, in f32 (f64 for f64
// parameters). A state dict contains the state of the optimizer as the state of parameter 0, as in
// PyTorch.
class LBFGS : public GroupedOptimizer<LBFGSOptions> {
  public:
    // Throws ValueError for an empty list, for parameters that are undefined, repeated or not
    // leaves, and for options out of range.
    explicit LBFGS(std::vector<Tensor> params, LBFGSOptions options = {});

  protected:
    const char* name() const override { return LBFGSOptions::kName; }
    std::span<const char* const> buffer_names() const override { return {}; }
    bool needs_buffer(std::size_t, std::size_t) const override { return false; }
    void check_divided() const override;
    void fill_groups(Device) override {}
    void update(Device, std::span<const kernels::Slot>, const kernels::StepScalars*) override {}
    bool needs_closure() const override { return true; }
    Tensor step_with_closure(const std::function<Tensor()>& closure) override;
    bool has_own_state() const override { return true; }
    Tree own_state() const override;
    void load_own_state(const Tree& tree) override;

  private:
    struct Pair {
        Tensor gradient_change, step;
        double ro = 0;  // 1 / (gradient_change . step)
    };
    // The state of the optimizer between steps.
    struct State {
        std::int64_t func_evals = 0, n_iter = 0;
        Tensor direction;
        double t = 0;
        std::vector<Pair> history;
        double h_diag = 1;  // the diagonal of the first approximation of the inverse Hessian
        Tensor gradient;    // the gradient of the last iteration
        double loss = 0;
    };
    // The loss and the gradient of all parameters as one 1-d tensor, both negated if the loss is
    // maximized.
    struct Evaluation {
        Tensor result = {};  // the result of the closure
        double loss = 0;
        Tensor gradient = {};
    };

    Evaluation evaluate(const std::function<Tensor()>& closure);
    void move(const std::vector<Tensor>& from, double t, const Tensor& direction) const;
    void update_history(const Tensor& gradient);
    Tensor direction_for(const Tensor& gradient) const;
    Evaluation search(const std::function<Tensor()>& closure, const Evaluation& start, double slope,
                      std::int64_t max_evaluations, std::int64_t& evaluations);

    State state_;
};

}  // namespace axle::optim
