// Private to kernels: the values that an optimizer step computes once per slot, before its
// elements. The optimizer sources for the CPU and for the GPU are compiled without fused
// multiply-adds, so that both give the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ops/optimizer.h"
#include "kernels/philox.h"

namespace axle::kernels {

enum class SgdKind : std::uint8_t { plain, momentum, nesterov };

struct SgdStep {
    double lr, grad, decay, momentum;
    double keep, add;  // b = keep * b + add * g
    std::uint64_t offset;
    SgdKind kind;
};

// The scalars of one Adam step of a slot. With root = sqrt(1 - beta2^t), the denominator sqrt(v /
// (1 - beta2^t)) + eps equals (sqrt(v) + eps root) / root, so that bias correction needs no
// division per element.
struct AdamStep {
    double grad;   // factor of the gradient: inv_scale * clip, negated if maximizing
    double decay;  // factor of the parameter in the term added to the gradient
    double keep;   // factor of the parameter for decoupled weight decay
    double beta2;
    double one_minus_beta1, one_minus_beta2;  // 1 - beta1, 1 - beta2
    double step_size;                         // lr root / (1 - beta1^t)
    double eps;                               // eps * root
    std::uint64_t offset;
};

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

AXLE_HOST_DEVICE inline SgdStep step_of(const Slot& slot, const SgdGroup& group,
                                        const StepScalars* scalars) {
    SgdStep s = {};
    s.lr = group.lr;
    s.grad = grad_factor(scalars, group.maximize);
    s.decay = group.weight_decay;
    s.kind = SgdKind::plain;
    if (slot.step == nullptr) return s;
    const std::int64_t t = next_step(slot);
    s.offset = offset_of(t);
    if (group.momentum == 0) return s;
    s.kind = group.nesterov ? SgdKind::nesterov : SgdKind::momentum;
    s.momentum = group.momentum;
    s.keep = t == 1 ? 0 : group.momentum;
    s.add = t == 1 ? 1 : 1 - group.dampening;
    return s;
}

AXLE_HOST_DEVICE inline AdamStep step_of(const Slot& slot, const AdamGroup& group,
                                         const StepScalars* scalars) {
    const std::int64_t t = next_step(slot);
    AdamStep s = {};
    s.grad = grad_factor(scalars, group.maximize);
    s.decay = group.decoupled ? 0 : group.weight_decay;
    s.keep = group.decoupled ? 1 - group.lr * group.weight_decay : 1;
    s.beta2 = group.beta2;
    s.one_minus_beta1 = 1 - group.beta1;
    s.one_minus_beta2 = 1 - group.beta2;
    const double root = sqrt(1 - power(group.beta2, t));
    s.step_size = group.lr * root / (1 - power(group.beta1, t));
    s.eps = group.eps * root;
    s.offset = offset_of(t);
    return s;
}

// Returns the random generator for the stochastic rounding of a slot in one step. Elements are
// numbered as in kernels/ops/rounding.h.
template <class Step>
AXLE_HOST_DEVICE constexpr Philox rounding_random(const Slot& slot, const Step& step) {
    return {slot.seed, step.offset, nullptr};
}

}  // namespace axle::kernels
