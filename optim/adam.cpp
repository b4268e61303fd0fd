#include "optim/adam.h"

#include "optim/rule_optimizer_impl.h"

namespace axle::optim {
namespace {

template <class Options>
std::vector<NamedOption> named_adam_options(Options& o) {
    return {{"lr", &o.lr},           {"betas", &o.betas},
            {"eps", &o.eps},         {"weight_decay", &o.weight_decay},
            {"amsgrad", &o.amsgrad}, {"maximize", &o.maximize}};
}

template <class Options>
void check_adam_options(const char* op, const Options& o) {
    check_not_negative(op, {{"lr", o.lr}, {"eps", o.eps}, {"weight_decay", o.weight_decay}});
    check_betas(op, o.betas);
}

}  // namespace

std::vector<NamedOption> AdamOptions::named() { return named_adam_options(*this); }
std::vector<NamedOption> AdamWOptions::named() { return named_adam_options(*this); }
void AdamOptions::check(const char* op) const { check_adam_options(op, *this); }
void AdamWOptions::check(const char* op) const { check_adam_options(op, *this); }

template <class Options>
struct AdamRule : CommonRule<Options> {
    static constexpr const char* kBuffers[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
    static bool needs(const Options& o, std::size_t buffer) { return buffer < 2 || o.amsgrad; }
    static kernels::AdamGroup row(const Options& o) {
        return {o.lr,      o.betas[0], o.betas[1], o.eps, o.weight_decay, Options::kDecoupledDecay,
                o.maximize};
    }
    static void step(auto& on, const auto&... of) { kernels::adam(on, of...); }
};

template <>
struct Rule<AdamOptions> : AdamRule<AdamOptions> {};
template <>
struct Rule<AdamWOptions> : AdamRule<AdamWOptions> {};

template class RuleOptimizer<AdamOptions, kernels::AdamGroup>;
template class RuleOptimizer<AdamWOptions, kernels::AdamGroup>;

}  // namespace axle::optim
