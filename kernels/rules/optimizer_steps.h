// Private to kernels: the values that an optimizer step computes once per slot, before its
// elements. The optimizer sources for the CPU and for the GPU are compiled without fused
// multiply-adds, so that both give the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ops/optimizer.h"
#include "kernels/philox.h"

namespace axle::kernels {

AXLE_HOST_DEVICE constexpr bool is_skipped(const StepScalars* scalars) {
    return scalars != nullptr && scalars->found_inf != 0;
}

AXLE_HOST_DEVICE constexpr double grad_factor(const StepScalars* scalars, bool maximize) {
    const double factor = scalars != nullptr ? scalars->inv_scale * scalars->clip : 1.0;
    return maximize ? -factor : factor;
}

// Returns x^n by squaring. Unlike pow(), it gives the same bits on every processor.
AXLE_HOST_DEVICE constexpr double power(double x, std::int64_t n) {
    double result = 1;
    for (; n > 0; n /= 2) {
        if (n % 2 == 1) result *= x;
        x *= x;
    }
    return result;
}

// Increments the slot's step count and returns it.
AXLE_HOST_DEVICE inline std::int64_t next_step(const Slot& slot) {
    return static_cast<std::int64_t>(*slot.step += 1);
}

// Returns the Philox offset of step t. The ranges of different steps do not overlap: no tensor has
// 2^43 elements, and the f32 step counter does not exceed 2^24.
AXLE_HOST_DEVICE constexpr std::uint64_t offset_of(std::int64_t t) {
    return static_cast<std::uint64_t>(t) << 40;
}

// number_at() returns, and set_number() sets, the only element of an array of the slot's state.
AXLE_HOST_DEVICE inline double number_at(const Slot& slot, int array) {
    const void* const number = slot.state[array];
    return slot.param_dtype == DType::f64 ? *static_cast<const double*>(number)
                                          : double{*static_cast<const float*>(number)};
}
AXLE_HOST_DEVICE inline void set_number(const Slot& slot, int array, double value) {
    void* const number = slot.state[array];
    if (slot.param_dtype == DType::f64)
        *static_cast<double*>(number) = value;
    else
        *static_cast<float*>(number) = static_cast<float>(value);
}

template <class T>
AXLE_HOST_DEVICE constexpr T select(bool condition, T yes, T no) {
    return condition ? yes : no;
}

// Each optimizer has a rule, a struct with these members:
//     Group          the hyperparameters of a parameter group
//     Factors<T>     numbers that all elements of a slot use in one step; all members are T
//     factors()      computes Factors<double> for step t, and updates state arrays that have only
//                    one element; `grad` is the factor of the gradient
//     kModes         the number of variants of the update
//     mode()         returns the variant for a slot, in [0, kModes); called before factors()
//     arrays(mode)   the arrays of Slot::state that the variant updates for each element: bit i is
//                    set for array i
// and a function update() for one element in kernels/rules/optimizer_rules.inl. This list names the
// rules and their kernels.
// clang-format off
#define AXLE_OPTIMIZER_RULES(X)                                                              \
    X(Sgd, sgd) X(Adam, adam) X(RmsProp, rmsprop) X(Adagrad, adagrad) X(Adadelta, adadelta)  \
    X(Adamax, adamax) X(NAdam, nadam) X(RAdam, radam) X(Lion, lion) X(Rprop, rprop)          \
    X(Asgd, asgd)
// clang-format on

// Base of rules with one variant, which updates the first kArrays arrays.
template <class GroupType, unsigned kArrays>
struct PlainRule {
    using Group = GroupType;
    static constexpr int kModes = 1;
    AXLE_HOST_DEVICE static constexpr int mode(const Slot&, const Group&) { return 0; }
    AXLE_HOST_DEVICE static constexpr unsigned arrays(int) { return (1U << kArrays) - 1; }
};

template <class T>
struct SgdFactors {
    T lr, grad, decay, momentum;
    T keep, add;  // b = keep * b + add * g
};

struct Sgd {
    using Group = SgdGroup;
    template <class T>
    using Factors = SgdFactors<T>;
    static constexpr int kPlain = 0, kMomentum = 1, kNesterov = 2, kModes = 3;

    AXLE_HOST_DEVICE static constexpr unsigned arrays(int mode) { return mode == kPlain ? 0 : 1; }
    AXLE_HOST_DEVICE static constexpr int mode(const Slot& slot, const SgdGroup& group) {
        if (slot.step == nullptr || group.momentum == 0) return kPlain;
        return group.nesterov ? kNesterov : kMomentum;
    }
    AXLE_HOST_DEVICE static SgdFactors<double> factors(const Slot&, const SgdGroup& group,
                                                       double grad, std::int64_t t) {
        return {.lr = group.lr,
                .grad = grad,
                .decay = group.weight_decay,
                .momentum = group.momentum,
                .keep = t == 1 ? 0 : group.momentum,
                .add = t == 1 ? 1 : 1 - group.dampening};
    }
};

// With root = sqrt(1 - beta2^t), the denominator sqrt(v / (1 - beta2^t)) + eps equals (sqrt(v) +
// eps root) / root, so that bias correction needs no division per element.
template <class T>
struct AdamFactors {
    T grad;
    T decay;  // factor of the parameter in the term added to the gradient
    T keep;   // factor of the parameter for decoupled weight decay
    T beta2;
    T one_minus_beta1, one_minus_beta2;  // 1 - beta1, 1 - beta2
    T step_size;                         // lr root / (1 - beta1^t)
    T eps;                               // eps * root
};

struct Adam {
    using Group = AdamGroup;
    template <class T>
    using Factors = AdamFactors<T>;
    static constexpr int kPlain = 0, kAmsgrad = 1, kModes = 2;

    AXLE_HOST_DEVICE static constexpr unsigned arrays(int mode) { return mode == kPlain ? 3 : 7; }
    AXLE_HOST_DEVICE static constexpr int mode(const Slot& slot, const AdamGroup&) {
        return slot.state[2] != nullptr ? kAmsgrad : kPlain;
    }
    AXLE_HOST_DEVICE static AdamFactors<double> factors(const Slot&, const AdamGroup& group,
                                                        double grad, std::int64_t t) {
        const double root = sqrt(1 - power(group.beta2, t));
        return {.grad = grad,
                .decay = group.decoupled ? 0 : group.weight_decay,
                .keep = group.decoupled ? 1 - group.lr * group.weight_decay : 1,
                .beta2 = group.beta2,
                .one_minus_beta1 = 1 - group.beta1,
                .one_minus_beta2 = 1 - group.beta2,
                .step_size = group.lr * root / (1 - power(group.beta1, t)),
                .eps = group.eps * root};
    }
};

template <class T>
struct RmsPropFactors {
    T lr, grad, decay, momentum, alpha, one_minus_alpha, eps;
};

struct RmsProp {
    using Group = RmsPropGroup;
    template <class T>
    using Factors = RmsPropFactors<T>;
    // A mode is a sum of these numbers.
    static constexpr int kMomentum = 1, kCentered = 2, kModes = 4;

    AXLE_HOST_DEVICE static constexpr unsigned arrays(int mode) {
        return 1U + (static_cast<unsigned>(mode) << 1U);
    }
    AXLE_HOST_DEVICE static constexpr int mode(const Slot& slot, const RmsPropGroup&) {
        return (slot.state[1] != nullptr ? kMomentum : 0) +
               (slot.state[2] != nullptr ? kCentered : 0);
    }
    AXLE_HOST_DEVICE static RmsPropFactors<double> factors(const Slot&, const RmsPropGroup& group,
                                                           double grad, std::int64_t) {
        return {.lr = group.lr,
                .grad = grad,
                .decay = group.weight_decay,
                .momentum = group.momentum,
                .alpha = group.alpha,
                .one_minus_alpha = 1 - group.alpha,
                .eps = group.eps};
    }
};

template <class T>
struct AdagradFactors {
    T lr, grad, decay, eps;
};

struct Adagrad : PlainRule<AdagradGroup, 1> {
    template <class T>
    using Factors = AdagradFactors<T>;
    AXLE_HOST_DEVICE static AdagradFactors<double> factors(const Slot&, const AdagradGroup& group,
                                                           double grad, std::int64_t t) {
        return {.lr = group.lr / (1 + static_cast<double>(t - 1) * group.lr_decay),
                .grad = grad,
                .decay = group.weight_decay,
                .eps = group.eps};
    }
};

template <class T>
struct AdadeltaFactors {
    T lr, grad, decay, rho, one_minus_rho, eps;
};

struct Adadelta : PlainRule<AdadeltaGroup, 2> {
    template <class T>
    using Factors = AdadeltaFactors<T>;
    AXLE_HOST_DEVICE static AdadeltaFactors<double> factors(const Slot&, const AdadeltaGroup& group,
                                                            double grad, std::int64_t) {
        return {.lr = group.lr,
                .grad = grad,
                .decay = group.weight_decay,
                .rho = group.rho,
                .one_minus_rho = 1 - group.rho,
                .eps = group.eps};
    }
};

template <class T>
struct AdamaxFactors {
    T grad, decay, one_minus_beta1, beta2, eps;
    T step_size;  // lr / (1 - beta1^t)
};

struct Adamax : PlainRule<AdamaxGroup, 2> {
    template <class T>
    using Factors = AdamaxFactors<T>;
    AXLE_HOST_DEVICE static AdamaxFactors<double> factors(const Slot&, const AdamaxGroup& group,
                                                          double grad, std::int64_t t) {
        return {.grad = grad,
                .decay = group.weight_decay,
                .one_minus_beta1 = 1 - group.beta1,
                .beta2 = group.beta2,
                .eps = group.eps,
                .step_size = group.lr / (1 - power(group.beta1, t))};
    }
};

// The members are the same as in AdamFactors, except that grad_step and average_step replace
// step_size.
template <class T>
struct NAdamFactors {
    T grad, decay, keep, beta2, one_minus_beta1, one_minus_beta2, eps;
    T grad_step, average_step;  // the factors of g and m, multiplied by root
};

struct NAdam : PlainRule<NAdamGroup, 2> {
    template <class T>
    using Factors = NAdamFactors<T>;
    AXLE_HOST_DEVICE static NAdamFactors<double> factors(const Slot& slot, const NAdamGroup& group,
                                                         double grad, std::int64_t t) {
        const double mu = group.beta1 * (1 - 0.5 * power(group.cooling, t));
        const double next_mu = group.beta1 * (1 - 0.5 * power(group.cooling, t + 1));
        const double root = sqrt(1 - power(group.beta2, t));
        set_number(slot, 2, number_at(slot, 2) * mu);
        const double product = number_at(slot, 2);
        return {.grad = grad,
                .decay = group.decoupled ? 0 : group.weight_decay,
                .keep = group.decoupled ? 1 - group.lr * group.weight_decay : 1,
                .beta2 = group.beta2,
                .one_minus_beta1 = 1 - group.beta1,
                .one_minus_beta2 = 1 - group.beta2,
                .eps = group.eps * root,
                .grad_step = group.lr * root * (1 - mu) / (1 - product),
                .average_step = group.lr * root * next_mu / (1 - product * next_mu)};
    }
};

// The update is p = keep * p - step_size * m / (root * sqrt(v) + eps). root is 1, and eps is the
// group's eps. In the first steps, which do not use v, root is 0 and eps is 1. grad, decay, keep,
// beta2 and the differences from 1 are the same as in AdamFactors.
template <class T>
struct RAdamFactors {
    T grad, decay, keep, beta2, one_minus_beta1, one_minus_beta2, step_size, root, eps;
};

struct RAdam : PlainRule<RAdamGroup, 2> {
    template <class T>
    using Factors = RAdamFactors<T>;
    AXLE_HOST_DEVICE static RAdamFactors<double> factors(const Slot&, const RAdamGroup& group,
                                                         double grad, std::int64_t t) {
        const double bias = 1 - power(group.beta2, t), longest = 2 / (1 - group.beta2) - 1;
        const double length = longest - 2 * static_cast<double>(t) * (1 - bias) / bias;
        const bool uses_v = length > 5;
        const double rectified = uses_v ? sqrt((length - 4) * (length - 2) * longest /
                                               ((longest - 4) * (longest - 2) * length) * bias)
                                        : 1;
        return {.grad = grad,
                .decay = group.decoupled ? 0 : group.weight_decay,
                .keep = group.decoupled ? 1 - group.lr * group.weight_decay : 1,
                .beta2 = group.beta2,
                .one_minus_beta1 = 1 - group.beta1,
                .one_minus_beta2 = 1 - group.beta2,
                .step_size = group.lr * rectified / (1 - power(group.beta1, t)),
                .root = uses_v ? 1.0 : 0.0,
                .eps = uses_v ? group.eps : 1};
    }
};

template <class T>
struct LionFactors {
    T lr, grad, keep, beta1, one_minus_beta1, beta2, one_minus_beta2;
};

struct Lion : PlainRule<LionGroup, 1> {
    template <class T>
    using Factors = LionFactors<T>;
    AXLE_HOST_DEVICE static LionFactors<double> factors(const Slot&, const LionGroup& group,
                                                        double grad, std::int64_t) {
        return {.lr = group.lr,
                .grad = grad,
                .keep = 1 - group.lr * group.weight_decay,
                .beta1 = group.beta1,
                .one_minus_beta1 = 1 - group.beta1,
                .beta2 = group.beta2,
                .one_minus_beta2 = 1 - group.beta2};
    }
};

template <class T>
struct RpropFactors {
    T grad, eta_minus, eta_plus, min_step, max_step;
};

struct Rprop : PlainRule<RpropGroup, 2> {
    template <class T>
    using Factors = RpropFactors<T>;
    AXLE_HOST_DEVICE static RpropFactors<double> factors(const Slot&, const RpropGroup& group,
                                                         double grad, std::int64_t) {
        return {.grad = grad,
                .eta_minus = group.eta_minus,
                .eta_plus = group.eta_plus,
                .min_step = group.min_step,
                .max_step = group.max_step};
    }
};

template <class T>
struct AsgdFactors {
    T grad, decay, keep, eta, mu;  // keep = 1 - lambd * eta
};

struct Asgd {
    using Group = AsgdGroup;
    template <class T>
    using Factors = AsgdFactors<T>;
    static constexpr int kAverages = 0, kCopies = 1, kModes = 2;

    AXLE_HOST_DEVICE static constexpr unsigned arrays(int) { return 1; }
    AXLE_HOST_DEVICE static int mode(const Slot& slot, const AsgdGroup&) {
        return number_at(slot, 2) == 1 ? kCopies : kAverages;
    }
    AXLE_HOST_DEVICE static AsgdFactors<double> factors(const Slot& slot, const AsgdGroup& group,
                                                        double grad, std::int64_t t) {
        const double eta = number_at(slot, 1), mu = number_at(slot, 2);
        const auto count = static_cast<double>(t);
        set_number(slot, 1, group.lr / pow(1 + group.lambd * group.lr * count, group.alpha));
        set_number(slot, 2, count - group.t0 > 1 ? 1 / (count - group.t0) : 1);
        return {.grad = grad,
                .decay = group.weight_decay,
                .keep = 1 - group.lambd * eta,
                .eta = eta,
                .mu = mu};
    }
};

// The parts of a step that kernels use with every rule.
struct SlotStep {
    std::uint64_t offset;  // the position of the random numbers for stochastic rounding
    int mode;
};
template <class Rule>
struct StepOf : SlotStep {
    typename Rule::template Factors<double> factors;
};

// Counts a step of the slot, if it has a step count, and returns the values of the step.
template <class Rule>
AXLE_HOST_DEVICE StepOf<Rule> step_of(const Slot& slot, const typename Rule::Group& group,
                                      const StepScalars* scalars) {
    const std::int64_t t = slot.step != nullptr ? next_step(slot) : 0;
    const int mode = Rule::mode(slot, group);
    return {{offset_of(t), mode},
            Rule::factors(slot, group, grad_factor(scalars, group.maximize), t)};
}

// Returns the random generator for the stochastic rounding of a slot in one step. Elements are
// numbered as in kernels/ops/rounding.h.
AXLE_HOST_DEVICE constexpr Philox rounding_random(const Slot& slot, const SlotStep& step) {
    return {slot.seed, step.offset, nullptr};
}

}  // namespace axle::kernels
