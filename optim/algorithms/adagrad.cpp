#include "optim/algorithms/adagrad.h"

#include "optim/rule_optimizer_impl.h"

namespace axle::optim {

std::vector<NamedOption> AdagradOptions::named() {
    return {{"lr", &lr},
            {"lr_decay", &lr_decay},
            {"eps", &eps},
            {"weight_decay", &weight_decay},
            {"initial_accumulator_value", &initial_accumulator_value},
            {"maximize", &maximize}};
}

void AdagradOptions::check(const char* op) const {
    check_not_negative(op, {{"lr", lr},
                            {"lr_decay", lr_decay},
                            {"weight_decay", weight_decay},
                            {"initial_accumulator_value", initial_accumulator_value},
                            {"eps", eps}});
}

template <>
struct Rule<AdagradOptions> : CommonRule<AdagradOptions> {
    static constexpr const char* kBuffers[] = {"sum"};
    static double initial_value(const AdagradOptions& o, std::size_t) {
        return o.initial_accumulator_value;
    }
    static kernels::AdagradGroup row(const AdagradOptions& o) {
        return {.lr = o.lr,
                .lr_decay = o.lr_decay,
                .eps = o.eps,
                .weight_decay = o.weight_decay,
                .maximize = o.maximize};
    }
    static void step(auto& on, const auto&... of) { kernels::adagrad(on, of...); }
};

std::vector<NamedOption> RMSpropOptions::named() {
    return {{"lr", &lr},
            {"momentum", &momentum},
            {"alpha", &alpha},
            {"eps", &eps},
            {"centered", &centered},
            {"weight_decay", &weight_decay},
            {"maximize", &maximize}};
}

void RMSpropOptions::check(const char* op) const {
    check_not_negative(op, {{"lr", lr},
                            {"eps", eps},
                            {"momentum", momentum},
                            {"weight_decay", weight_decay},
                            {"alpha", alpha}});
}

template <>
struct Rule<RMSpropOptions> : CommonRule<RMSpropOptions> {
    static constexpr const char* kBuffers[] = {"square_avg", "momentum_buffer", "grad_avg"};
    static bool needs(const RMSpropOptions& o, std::size_t buffer) {
        return buffer == 0 || (buffer == 1 ? o.momentum > 0 : o.centered);
    }
    static kernels::RmsPropGroup row(const RMSpropOptions& o) {
        return {o.lr, o.momentum, o.alpha, o.eps, o.weight_decay, o.maximize};
    }
    static void step(auto& on, const auto&... of) { kernels::rmsprop(on, of...); }
};

std::vector<NamedOption> AdadeltaOptions::named() {
    return {{"lr", &lr},
            {"rho", &rho},
            {"eps", &eps},
            {"weight_decay", &weight_decay},
            {"maximize", &maximize}};
}

void AdadeltaOptions::check(const char* op) const {
    check_not_negative(op, {{"lr", lr}, {"eps", eps}, {"weight_decay", weight_decay}});
    if (!(rho >= 0 && rho <= 1)) throw ValueError(str(op, ": rho must be in [0, 1]: ", rho));
}

template <>
struct Rule<AdadeltaOptions> : CommonRule<AdadeltaOptions> {
    static constexpr const char* kBuffers[] = {"square_avg", "acc_delta"};
    static kernels::AdadeltaGroup row(const AdadeltaOptions& o) {
        return {.lr = o.lr,
                .rho = o.rho,
                .eps = o.eps,
                .weight_decay = o.weight_decay,
                .maximize = o.maximize};
    }
    static void step(auto& on, const auto&... of) { kernels::adadelta(on, of...); }
};

template class RuleOptimizer<AdagradOptions, kernels::AdagradGroup>;
template class RuleOptimizer<RMSpropOptions, kernels::RmsPropGroup>;
template class RuleOptimizer<AdadeltaOptions, kernels::AdadeltaGroup>;

}  // namespace axle::optim
