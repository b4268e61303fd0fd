#include "optim/sgd.h"

#include "optim/rule_optimizer_impl.h"

namespace axle::optim {

std::vector<NamedOption> SGDOptions::named() {
    return {{"lr", &lr},
            {"momentum", &momentum},
            {"dampening", &dampening},
            {"weight_decay", &weight_decay},
            {"nesterov", &nesterov},
            {"maximize", &maximize}};
}

void SGDOptions::check(const char* op) const {
    check_not_negative(op, {{"lr", lr}, {"momentum", momentum}, {"weight_decay", weight_decay}});
    if (nesterov && (momentum <= 0 || dampening != 0))
        throw ValueError(str(op, ": nesterov needs momentum above 0 and dampening 0: momentum ",
                             momentum, ", dampening ", dampening));
}

template <>
struct Rule<SGDOptions> : CommonRule<SGDOptions> {
    static constexpr const char* kBuffers[] = {"momentum_buffer"};
    static constexpr bool kSavesStep = false;
    static bool needs(const SGDOptions& o, std::size_t) { return o.momentum != 0; }
    static kernels::SgdGroup row(const SGDOptions& o) {
        return {o.lr, o.momentum, o.dampening, o.weight_decay, o.nesterov, o.maximize};
    }
    static void step(auto& on, const auto&... of) { kernels::sgd(on, of...); }
};

template class RuleOptimizer<SGDOptions, kernels::SgdGroup>;

}  // namespace axle::optim
