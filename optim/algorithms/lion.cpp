#include "optim/algorithms/lion.h"

#include "optim/rule_optimizer_impl.h"

namespace axle::optim {

std::vector<NamedOption> LionOptions::named() {
    return {
        {"lr", &lr}, {"betas", &betas}, {"weight_decay", &weight_decay}, {"maximize", &maximize}};
}

void LionOptions::check(const char* op) const {
    check_not_negative(op, {{"lr", lr}, {"weight_decay", weight_decay}});
    check_betas(op, betas);
}

template <>
struct Rule<LionOptions> : CommonRule<LionOptions> {
    static constexpr const char* kBuffers[] = {"exp_avg"};
    static constexpr bool kSavesStep = false;
    static kernels::LionGroup row(const LionOptions& o) {
        return {o.lr, o.betas[0], o.betas[1], o.weight_decay, o.maximize};
    }
    static void step(auto& on, const auto&... of) { kernels::lion(on, of...); }
};

std::vector<NamedOption> RpropOptions::named() {
    return {{"lr", &lr}, {"etas", &etas}, {"step_sizes", &step_sizes}, {"maximize", &maximize}};
}

void RpropOptions::check(const char* op) const {
    check_not_negative(op, {{"lr", lr}});
    if (!(0 < etas[0] && etas[0] < 1 && 1 < etas[1]))
        throw ValueError(str(op, ": etas[0] must be in (0, 1) and etas[1] above 1: [", etas[0],
                             ", ", etas[1], "]"));
}

template <>
struct Rule<RpropOptions> : CommonRule<RpropOptions> {
    static constexpr const char* kBuffers[] = {"prev", "step_size"};
    static double initial_value(const RpropOptions& o, std::size_t buffer) {
        return buffer == 0 ? 0 : o.lr;
    }
    static kernels::RpropGroup row(const RpropOptions& o) {
        return {.lr = o.lr,
                .eta_minus = o.etas[0],
                .eta_plus = o.etas[1],
                .min_step = o.step_sizes[0],
                .max_step = o.step_sizes[1],
                .maximize = o.maximize};
    }
    static void step(auto& on, const auto&... of) { kernels::rprop(on, of...); }
};

std::vector<NamedOption> ASGDOptions::named() {
    return {{"lr", &lr},
            {"lambd", &lambd},
            {"alpha", &alpha},
            {"t0", &t0},
            {"weight_decay", &weight_decay},
            {"maximize", &maximize}};
}

void ASGDOptions::check(const char* op) const {
    check_not_negative(
        op, {{"lr", lr}, {"lambd", lambd}, {"alpha", alpha}, {"weight_decay", weight_decay}});
}

template <>
struct Rule<ASGDOptions> : CommonRule<ASGDOptions> {
    static constexpr const char* kBuffers[] = {"ax", "eta", "mu"};
    static bool is_number(std::size_t buffer) { return buffer > 0; }
    static double initial_value(const ASGDOptions& o, std::size_t buffer) {
        if (buffer == 0) return 0;
        return buffer == 1 ? o.lr : 1;
    }
    static kernels::AsgdGroup row(const ASGDOptions& o) {
        return {.lr = o.lr,
                .lambd = o.lambd,
                .alpha = o.alpha,
                .t0 = o.t0,
                .weight_decay = o.weight_decay,
                .maximize = o.maximize};
    }
    static void step(auto& on, const auto&... of) { kernels::asgd(on, of...); }
};

template class RuleOptimizer<LionOptions, kernels::LionGroup>;
template class RuleOptimizer<RpropOptions, kernels::RpropGroup>;
template class RuleOptimizer<ASGDOptions, kernels::AsgdGroup>;

}  // namespace axle::optim
