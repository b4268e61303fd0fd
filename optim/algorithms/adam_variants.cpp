#include "optim/algorithms/adam_variants.h"

#include "optim/rule_optimizer_impl.h"

namespace axle::optim {

std::vector<NamedOption> AdamaxOptions::named() {
    return {{"lr", &lr},
            {"betas", &betas},
            {"eps", &eps},
            {"weight_decay", &weight_decay},
            {"maximize", &maximize}};
}

void AdamaxOptions::check(const char* op) const {
    check_not_negative(op, {{"lr", lr}, {"eps", eps}, {"weight_decay", weight_decay}});
    check_betas(op, betas);
}

template <>
struct Rule<AdamaxOptions> : CommonRule<AdamaxOptions> {
    static constexpr const char* kBuffers[] = {"exp_avg", "exp_inf"};
    static kernels::AdamaxGroup row(const AdamaxOptions& o) {
        return {o.lr, o.betas[0], o.betas[1], o.eps, o.weight_decay, o.maximize};
    }
    static void step(auto& on, const auto&... of) { kernels::adamax(on, of...); }
};

std::vector<NamedOption> NAdamOptions::named() {
    return {{"lr", &lr},
            {"betas", &betas},
            {"eps", &eps},
            {"weight_decay", &weight_decay},
            {"momentum_decay", &momentum_decay},
            {"decoupled_weight_decay", &decoupled_weight_decay},
            {"maximize", &maximize}};
}

void NAdamOptions::check(const char* op) const {
    check_not_negative(op, {{"lr", lr},
                            {"eps", eps},
                            {"weight_decay", weight_decay},
                            {"momentum_decay", momentum_decay}});
    check_betas(op, betas);
}

template <>
struct Rule<NAdamOptions> : CommonRule<NAdamOptions> {
    static constexpr const char* kBuffers[] = {"exp_avg", "exp_avg_sq", "mu_product"};
    static bool is_number(std::size_t buffer) { return buffer == 2; }
    static double initial_value(const NAdamOptions&, std::size_t buffer) {
        return buffer == 2 ? 1 : 0;
    }
    static kernels::NAdamGroup row(const NAdamOptions& o) {
        return {.lr = o.lr,
                .beta1 = o.betas[0],
                .beta2 = o.betas[1],
                .eps = o.eps,
                .weight_decay = o.weight_decay,
                .cooling = std::pow(0.96, o.momentum_decay),
                .decoupled = o.decoupled_weight_decay,
                .maximize = o.maximize};
    }
    static void step(auto& on, const auto&... of) { kernels::nadam(on, of...); }
};

std::vector<NamedOption> RAdamOptions::named() {
    return {{"lr", &lr},
            {"betas", &betas},
            {"eps", &eps},
            {"weight_decay", &weight_decay},
            {"maximize", &maximize},
            {"decoupled_weight_decay", &decoupled_weight_decay}};
}

void RAdamOptions::check(const char* op) const {
    check_not_negative(op, {{"lr", lr}, {"eps", eps}, {"weight_decay", weight_decay}});
    check_betas(op, betas);
}

template <>
struct Rule<RAdamOptions> : CommonRule<RAdamOptions> {
    static constexpr const char* kBuffers[] = {"exp_avg", "exp_avg_sq"};
    static kernels::RAdamGroup row(const RAdamOptions& o) {
        return {.lr = o.lr,
                .beta1 = o.betas[0],
                .beta2 = o.betas[1],
                .eps = o.eps,
                .weight_decay = o.weight_decay,
                .decoupled = o.decoupled_weight_decay,
                .maximize = o.maximize};
    }
    static void step(auto& on, const auto&... of) { kernels::radam(on, of...); }
};

template class RuleOptimizer<AdamaxOptions, kernels::AdamaxGroup>;
template class RuleOptimizer<NAdamOptions, kernels::NAdamGroup>;
template class RuleOptimizer<RAdamOptions, kernels::RAdamGroup>;

}  // namespace axle::optim
