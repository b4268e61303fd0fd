#include "optim/algorithms/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "core/cuda/graph.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "optim/algorithms/line_search.h"
#include "optim/rule_optimizer_impl.h"
#include "optim/tensor_optimizer.h"

namespace axle::optim {
namespace {

double product(const Tensor& a, const Tensor& b) { return dot(a, b).item(); }
double largest(const Tensor& x) { return x.numel() == 0 ? 0 : max(abs(x)).item(); }

Tree tensors_of(const auto& pairs, auto&& member) {
    Tree list = Tree::list();
    for (const auto& pair : pairs) list.push_back(member(pair));
    return list;
}

// Read a number, which PyTorch and files of save_state() may have as a tensor.
double number_of(const Tree& tree) {
    return tree.is_tensor() ? tree.tensor().item() : tree.number();
}
std::int64_t integer_of(const Tree& tree) {
    return tree.is_tensor() ? static_cast<std::int64_t>(number_of(tree)) : tree.integer();
}
// Returns the list under a key, or an empty list if the key is missing.
Tree list_of(const Tree& tree, const char* key) {
    const Tree* const list = tree.find(key);
    return list != nullptr ? *list : Tree::list();
}

}  // namespace

std::vector<NamedOption> LBFGSOptions::named() {
    return {{"lr", &lr},
            {"max_iter", &max_iter},
            {"max_eval", &max_eval},
            {"tolerance_grad", &tolerance_grad},
            {"tolerance_change", &tolerance_change},
            {"history_size", &history_size},
            {"line_search_fn", &line_search_fn},
            {"maximize", &maximize}};
}

void LBFGSOptions::check(const char* op) const {
    // This check is the first, because the default of max_eval depends on max_iter.
    if (max_iter < 1) throw ValueError(str(op, ": max_iter must be positive: ", max_iter));
    check_not_negative(op, {{"lr", lr},
                            {"tolerance_grad", tolerance_grad},
                            {"tolerance_change", tolerance_change},
                            {"max_eval", static_cast<double>(max_eval)}});
    if (history_size < 1)
        throw ValueError(str(op, ": history_size must be positive: ", history_size));
    if (line_search_fn && *line_search_fn != "strong_wolfe")
        throw ValueError(
            str(op, ": line_search_fn must be strong_wolfe or nullopt: ", *line_search_fn));
    refuse_stochastic_rounding(op, stochastic_rounding);
}

LBFGS::LBFGS(std::vector<Tensor> params, LBFGSOptions options) {
    if (options.max_eval == 0) options.max_eval = options.max_iter * 5 / 4;
    add_params(std::move(params), options);
}

void LBFGS::check_divided() const { refuse_divided("LBFGS"); }

LBFGS::Evaluation LBFGS::evaluate(const std::function<Tensor()>& closure) {
    ++state_.func_evals;
    Evaluation at{.result = closure()};
    if (!at.result.defined())
        throw UsageError("LBFGS: the closure must return the loss: the tensor is undefined");
    const double sign = groups_[0].maximize ? -1 : 1;
    at.loss = sign * at.result.item();
    std::vector<Tensor> parts;
    for (const Tensor& param : groups_[0].params) {
        if (autograd::is_sharded(param) || autograd::slice_of(param) != nullptr) check_divided();
        const DType wide = param.dtype() == f64 ? f64 : f32;
        const Tensor grad = param.grad();
        parts.push_back(flatten(grad.defined() ? grad.detach().to(wide) * sign
                                               : zeros_like(param.detach()).to(wide)));
    }
    at.gradient = cat(parts);
    return at;
}

// Sets the parameters to from + t * direction.
void LBFGS::move(const std::vector<Tensor>& from, double t, const Tensor& direction) const {
    std::int64_t begin = 0;
    const std::vector<Tensor>& params = groups_[0].params;
    for (std::size_t i = 0; i < params.size(); ++i) {
        const Tensor part = narrow(direction, 0, begin, params[i].numel());
        params[i].detach().copy_(from[i] + part.view(params[i].shape()) * t);
        begin += params[i].numel();
    }
}

// Adds the last step and its change of the gradient to the history, if the curvature is above
// 1e-10. Removes the oldest step if the history is full.
void LBFGS::update_history(const Tensor& gradient) {
    Pair pair{.gradient_change = gradient - state_.gradient, .step = state_.direction * state_.t};
    const double curvature = product(pair.gradient_change, pair.step);
    if (!(curvature > 1e-10)) return;
    if (std::ssize(state_.history) >= groups_[0].history_size)
        state_.history.erase(state_.history.begin());
    pair.ro = 1 / curvature;
    state_.h_diag = curvature / product(pair.gradient_change, pair.gradient_change);
    state_.history.push_back(std::move(pair));
}

// Returns minus the approximate inverse Hessian times the gradient (the two-loop recursion,
// algorithm 7.4 of Nocedal and Wright, Numerical Optimization).
Tensor LBFGS::direction_for(const Tensor& gradient) const {
    Tensor q = neg(gradient);
    std::vector<double> alphas(state_.history.size());
    for (std::size_t i = alphas.size(); i-- > 0;) {
        const Pair& pair = state_.history[i];
        alphas[i] = product(pair.step, q) * pair.ro;
        q = q - pair.gradient_change * alphas[i];
    }
    Tensor direction = q * state_.h_diag;
    for (std::size_t i = 0; i < alphas.size(); ++i) {
        const Pair& pair = state_.history[i];
        const double beta = product(pair.gradient_change, direction) * pair.ro;
        direction = direction + pair.step * (alphas[i] - beta);
    }
    return direction;
}

// Searches along the direction of the state. Sets t and `evaluations`, and moves the parameters to
// the result.
LBFGS::Evaluation LBFGS::search(const std::function<Tensor()>& closure, const Evaluation& start,
                                double slope, std::int64_t max_evaluations,
                                std::int64_t& evaluations) {
    std::vector<Tensor> from;
    for (const Tensor& param : groups_[0].params) from.push_back(clone(param.detach()));
    const auto at = [&](double t) {
        move(from, t, state_.direction);
        Evaluation evaluation = evaluate(closure);
        return LinePoint{t, evaluation.loss, product(evaluation.gradient, state_.direction),
                         evaluation.gradient};
    };
    const LineSearchResult result =
        strong_wolfe(at, {0, start.loss, slope, start.gradient}, state_.t,
                     largest(state_.direction), groups_[0].tolerance_change, max_evaluations);
    evaluations = result.evaluations;
    state_.t = result.point.t;
    move(from, state_.t, state_.direction);
    return {start.result, result.point.value, result.point.gradient};
}

Tensor LBFGS::step_with_closure(const std::function<Tensor()>& closure) {
    if (is_capturing()) throw UsageError("LBFGS: steps cannot be captured in a graph; use AdamW");
    if (scalars().defined())
        throw UsageError(
            "LBFGS: a GradScaler cannot scale the losses of a closure; use bf16 or no "
            "mixed precision");
    if (groups_.size() != 1)
        throw UsageError(str("LBFGS: all parameters must be in one group: there are ",
                             groups_.size(), " groups"));
    const profiler::Scope scope(name(), profiler::Category::optimizer);
    const NoGrad no_grad;
    const Group& group = groups_[0];
    Evaluation at = evaluate(closure);
    const Tensor first = at.result;
    if (largest(at.gradient) <= group.tolerance_grad) return first;

    std::int64_t evaluations = 1;
    for (std::int64_t i = 1; i <= group.max_iter; ++i) {
        const bool is_first = state_.n_iter++ == 0;
        if (!is_first) update_history(at.gradient);
        state_.direction = is_first ? neg(at.gradient) : direction_for(at.gradient);
        state_.gradient = at.gradient;
        state_.loss = at.loss;
        state_.t = is_first ? std::min(1.0, 1 / sum(abs(at.gradient)).item()) * group.lr : group.lr;
        const double slope = product(at.gradient, state_.direction);
        if (slope > -group.tolerance_change) break;

        std::int64_t count = 0;
        if (group.line_search_fn) {
            at = search(closure, at, slope, group.max_eval - evaluations, count);
        } else {
            move(group.params, state_.t, state_.direction);
            if (i == group.max_iter) break;
            at = evaluate(closure);
            count = 1;
        }
        evaluations += count;
        if (evaluations >= group.max_eval || largest(at.gradient) <= group.tolerance_grad ||
            largest(state_.direction * state_.t) <= group.tolerance_change ||
            std::abs(at.loss - state_.loss) < group.tolerance_change)
            break;
    }
    return first;
}

Tree LBFGS::own_state() const {
    Tree tree = Tree::map();
    if (state_.n_iter == 0) return tree;
    tree.set("func_evals", state_.func_evals);
    tree.set("n_iter", state_.n_iter);
    tree.set("d", state_.direction);
    tree.set("t", state_.t);
    tree.set("old_dirs", tensors_of(state_.history, [](auto& p) { return p.gradient_change; }));
    tree.set("old_stps", tensors_of(state_.history, [](auto& p) { return p.step; }));
    tree.set("ro", tensors_of(state_.history, [](auto& p) { return p.ro; }));
    tree.set("H_diag", state_.h_diag);
    tree.set("prev_flat_grad", state_.gradient);
    tree.set("prev_loss", state_.loss);
    return tree;
}

void LBFGS::load_own_state(const Tree& tree) {
    std::int64_t n = 0;
    for (const Tensor& param : groups_[0].params) n += param.numel();
    const Tensor like = groups_[0].params[0].detach();
    const auto vector = [&](const char* key, const Tree& saved) {
        if (saved.tensor().shape() != Shape{n})
            throw ShapeError(str("LBFGS: load_state_dict: ", key, " must be ", Shape{n}, ", not ",
                                 saved.tensor().shape()));
        return clone(saved.tensor().to(like.device()).to(like.dtype() == f64 ? f64 : f32));
    };
    State state;
    state.func_evals = integer_of(tree["func_evals"]);
    state.n_iter = integer_of(tree["n_iter"]);
    state.direction = vector("d", tree["d"]);
    state.t = number_of(tree["t"]);
    const Tree changes = list_of(tree, "old_dirs"), steps = list_of(tree, "old_stps"),
               ro = list_of(tree, "ro");
    if (steps.size() != changes.size() || ro.size() != changes.size())
        throw ValueError(
            str("LBFGS: load_state_dict: old_dirs, old_stps and ro must have equal sizes: ",
                changes.size(), ", ", steps.size(), " and ", ro.size()));
    for (std::size_t i = 0; i < changes.size(); ++i)
        state.history.push_back(
            {vector("old_dirs", changes[i]), vector("old_stps", steps[i]), number_of(ro[i])});
    state.h_diag = number_of(tree["H_diag"]);
    state.gradient = vector("prev_flat_grad", tree["prev_flat_grad"]);
    state.loss = number_of(tree["prev_loss"]);
    state_ = std::move(state);
}

}  // namespace axle::optim
