// One pass over memory per step: for each element the parameter, its gradient and its state are
// read once and written once (AdamW in f32: 16 bytes in, 12 bytes out), with unscaling, clipping
// and weight decay done in registers. What depends on a group or on a slot's step count (bias
// corrections) is worked out once per slot before the work is shared. 16-bit parameters and
// gradients pass through blocks of f32 lanes that stay in L1.
#include "kernels/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/optimizer_steps.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::inline v0::kernels::HWY_NAMESPACE {

// Each formula stands once, for T = Pack and T = double.

template <class T>
struct SgdFactors {
    explicit SgdFactors(const SgdStep& s)
        : lr(T(s.lr)),
          grad(T(s.grad)),
          decay(T(s.decay)),
          momentum(T(s.momentum)),
          keep(T(s.keep)),
          add(T(s.add)) {}
    T lr, grad, decay, momentum, keep, add;
};

template <SgdKind kKind, class T>
HWY_INLINE void sgd_update(const SgdFactors<T>& k, T g, T& p, T& b) {
    g = g * k.grad + k.decay * p;
    if constexpr (kKind != SgdKind::plain) b = b * k.keep + k.add * g;
    if constexpr (kKind == SgdKind::momentum) g = b;
    if constexpr (kKind == SgdKind::nesterov) g = g + k.momentum * b;
    p = p - k.lr * g;
}

template <class T>
struct AdamFactors {
    explicit AdamFactors(const AdamStep& s)
        : grad(T(s.grad)),
          decay(T(s.decay)),
          keep(T(s.keep)),
          beta2(T(s.beta2)),
          rest1(T(s.rest1)),
          rest2(T(s.rest2)),
          size(T(s.size)),
          eps(T(s.eps)) {}
    T grad, decay, keep, beta2, rest1, rest2, size, eps;
};

template <bool kAmsgrad, class T>
HWY_INLINE void adam_update(const AdamFactors<T>& k, T g, T& p, T& m, T& v, T& largest) {
    using std::max;
    using std::sqrt;
    g = g * k.grad + k.decay * p;
    m = m + k.rest1 * (g - m);
    v = v * k.beta2 + k.rest2 * g * g;
    largest = kAmsgrad ? T(max(largest, v)) : v;
    p = p * k.keep - k.size * (m / (sqrt(largest) + k.eps));
}

// A whole pack at i, or its first `rest` lanes.
template <SgdKind kKind, class... Rest>
HWY_INLINE void sgd_pack(const SgdFactors<Pack>& k, const SgdSpan<float>& s, std::int64_t i,
                         Rest... rest) {
    Pack p = Pack::load(s.p + i, rest...), b = Pack(0.0f);
    if constexpr (kKind != SgdKind::plain) b = Pack::load(s.b + i, rest...);
    sgd_update<kKind>(k, Pack::load(s.g + i, rest...), p, b);
    if constexpr (kKind != SgdKind::plain) b.store(s.b + i, rest...);
    p.store(s.p + i, rest...);
}

template <SgdKind kKind>
HWY_INLINE void sgd_packs(const SgdStep& step, const SgdSpan<float>& s) {
    const SgdFactors<Pack> k(step);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= s.n; i += Pack::kLanes) sgd_pack<kKind>(k, s, i);
    if (i < s.n) sgd_pack<kKind>(k, s, i, s.n - i);
}

void sgd_f32(const SgdStep& step, const SgdSpan<float>& s) {
    switch (step.kind) {
        case SgdKind::plain:
            return sgd_packs<SgdKind::plain>(step, s);
        case SgdKind::momentum:
            return sgd_packs<SgdKind::momentum>(step, s);
        case SgdKind::nesterov:
            return sgd_packs<SgdKind::nesterov>(step, s);
    }
}

template <SgdKind kKind>
HWY_INLINE void sgd_doubles(const SgdStep& step, const SgdSpan<double>& s) {
    const SgdFactors<double> k(step);
    double none = 0;
    for (std::int64_t i = 0; i < s.n; ++i)
        sgd_update<kKind>(k, s.g[i], s.p[i], kKind == SgdKind::plain ? none : s.b[i]);
}

void sgd_f64(const SgdStep& step, const SgdSpan<double>& s) {
    switch (step.kind) {
        case SgdKind::plain:
            return sgd_doubles<SgdKind::plain>(step, s);
        case SgdKind::momentum:
            return sgd_doubles<SgdKind::momentum>(step, s);
        case SgdKind::nesterov:
            return sgd_doubles<SgdKind::nesterov>(step, s);
    }
}

template <bool kAmsgrad, class... Rest>
HWY_INLINE void adam_pack(const AdamFactors<Pack>& k, const AdamSpan<float>& s, std::int64_t i,
                          Rest... rest) {
    Pack p = Pack::load(s.p + i, rest...);
    Pack m = Pack::load(s.m + i, rest...);
    Pack v = Pack::load(s.v + i, rest...);
    Pack largest = v;
    if constexpr (kAmsgrad) largest = Pack::load(s.largest + i, rest...);
    adam_update<kAmsgrad>(k, Pack::load(s.g + i, rest...), p, m, v, largest);
    if constexpr (kAmsgrad) largest.store(s.largest + i, rest...);
    m.store(s.m + i, rest...);
    v.store(s.v + i, rest...);
    p.store(s.p + i, rest...);
}

template <bool kAmsgrad>
HWY_INLINE void adam_packs(const AdamStep& step, const AdamSpan<float>& s) {
    const AdamFactors<Pack> k(step);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= s.n; i += Pack::kLanes) adam_pack<kAmsgrad>(k, s, i);
    if (i < s.n) adam_pack<kAmsgrad>(k, s, i, s.n - i);
}

void adam_f32(const AdamStep& step, const AdamSpan<float>& s) {
    if (s.largest) return adam_packs<true>(step, s);
    adam_packs<false>(step, s);
}

void adam_f64(const AdamStep& step, const AdamSpan<double>& s) {
    const AdamFactors<double> k(step);
    double unused = 0;
    for (std::int64_t i = 0; i < s.n; ++i) {
        if (s.largest)
            adam_update<true>(k, s.g[i], s.p[i], s.m[i], s.v[i], s.largest[i]);
        else
            adam_update<false>(k, s.g[i], s.p[i], s.m[i], s.v[i], unused);
    }
}

}  // namespace axle::inline v0::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <cmath>
#include <type_traits>

#include "kernels/cpu/chunks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/walk.h"

namespace axle::inline v0::kernels {
namespace {

AXLE_DISPATCH(sgd_f32);
AXLE_DISPATCH(sgd_f64);
AXLE_DISPATCH(adam_f32);
AXLE_DISPATCH(adam_f64);

void update(const SgdStep& step, const SgdSpan<float>& s) { AXLE_CALL(sgd_f32)(step, s); }
void update(const SgdStep& step, const SgdSpan<double>& s) { AXLE_CALL(sgd_f64)(step, s); }
void update(const AdamStep& step, const AdamSpan<float>& s) { AXLE_CALL(adam_f32)(step, s); }
void update(const AdamStep& step, const AdamSpan<double>& s) { AXLE_CALL(adam_f64)(step, s); }

template <class Lane>
Lane* state(void* data, std::int64_t offset) {
    return data ? static_cast<Lane*>(data) + offset : nullptr;
}

// body(p, g, offset, n) with the parameter and the gradient as lanes: the whole stretch at once
// where both are, else block by block. What the body leaves in p goes to the parameter.
template <class Lane, class Body>
void with_lanes(const Slot& slot, std::int64_t offset, std::int64_t n, Body&& body) {
    void* home = slot.master ? slot.master : slot.param;
    const DType home_dtype = slot.master ? DType::f32 : slot.param_dtype;
    const bool direct = slot.param_dtype == dtype_of<Lane> && slot.grad_dtype == dtype_of<Lane>;
    Lane p_buffer[kBlock], g_buffer[kBlock];
    for (const std::int64_t end = offset + n; offset < end; offset += n) {
        n = direct ? end - offset : std::min(kBlock, end - offset);
        const Lane* g = load_lanes<Lane>(at(slot.grad, slot.grad_dtype, offset), slot.grad_dtype, 1,
                                         n, g_buffer);
        void* stored = at(home, home_dtype, offset);
        Lane* p = p_buffer;
        if (home_dtype == dtype_of<Lane>)
            p = static_cast<Lane*>(stored);
        else
            load_lanes<Lane>(stored, home_dtype, 1, n, p_buffer);
        body(p, g, offset, n);
        store_lanes<Lane>(p, at(slot.param, slot.param_dtype, offset), slot.param_dtype, 1, n);
    }
}

// f.template operator()<Lane>() with the type that a slot is computed in.
template <class F>
void visit_lane(const Slot& slot, F&& f) {
    if (slot.param_dtype == DType::f64) return f.template operator()<double>();
    f.template operator()<float>();
}

double grad_factor(const StepScalars* scalars, bool maximize) {
    const double factor = scalars ? scalars->inv_scale * scalars->clip : 1.0;
    return maximize ? -factor : factor;
}

SgdStep sgd_step(const Slot& slot, const SgdGroup& group, const StepScalars* scalars) {
    SgdStep s = {};
    s.lr = group.lr;
    s.grad = grad_factor(scalars, group.maximize);
    s.decay = group.weight_decay;
    s.kind = SgdKind::plain;
    if (group.momentum == 0) return s;
    const bool first = (*slot.step += 1) == 1;
    s.kind = group.nesterov ? SgdKind::nesterov : SgdKind::momentum;
    s.momentum = group.momentum;
    s.keep = first ? 0 : group.momentum;
    s.add = first ? 1 : 1 - group.dampening;
    return s;
}

AdamStep adam_step(const Slot& slot, const AdamGroup& group, const StepScalars* scalars) {
    const double t = *slot.step += 1;
    AdamStep s = {};
    s.grad = grad_factor(scalars, group.maximize);
    s.decay = group.decoupled ? 0 : group.weight_decay;
    s.keep = group.decoupled ? 1 - group.lr * group.weight_decay : 1;
    s.beta2 = group.beta2;
    s.rest1 = 1 - group.beta1;
    s.rest2 = 1 - group.beta2;
    const double root = std::sqrt(1 - std::pow(group.beta2, t));
    s.size = group.lr * root / (1 - std::pow(group.beta1, t));
    s.eps = group.eps * root;
    return s;
}

}  // namespace

void sgd(Cpu& on, std::span<const Slot> slots, const SgdGroup* groups, const StepScalars* scalars) {
    if (scalars && scalars->found_inf != 0) return;
    Scratch scratch(on);
    SgdStep* steps = scratch.take<SgdStep>(static_cast<std::int64_t>(slots.size()));
    for (std::size_t i = 0; i < slots.size(); ++i)
        steps[i] = sgd_step(slots[i], groups[slots[i].group], scalars);
    for_each_stretch(slots, [&](std::int64_t, const Slot& slot, std::int64_t from, std::int64_t n) {
        const SgdStep& step = steps[&slot - slots.data()];
        visit_lane(slot, [&]<class Lane>() {
            with_lanes<Lane>(slot, from, n, [&](Lane* p, const Lane* g, std::int64_t i, auto size) {
                update(step, SgdSpan<Lane>{p, g, state<Lane>(slot.first, i), size});
            });
        });
    });
}

void adam(Cpu& on, std::span<const Slot> slots, const AdamGroup* groups,
          const StepScalars* scalars) {
    if (scalars && scalars->found_inf != 0) return;
    Scratch scratch(on);
    AdamStep* steps = scratch.take<AdamStep>(static_cast<std::int64_t>(slots.size()));
    for (std::size_t i = 0; i < slots.size(); ++i)
        steps[i] = adam_step(slots[i], groups[slots[i].group], scalars);
    for_each_stretch(slots, [&](std::int64_t, const Slot& slot, std::int64_t from, std::int64_t n) {
        const AdamStep& step = steps[&slot - slots.data()];
        visit_lane(slot, [&]<class Lane>() {
            with_lanes<Lane>(slot, from, n, [&](Lane* p, const Lane* g, std::int64_t i, auto size) {
                update(step,
                       AdamSpan<Lane>{p, g, state<Lane>(slot.first, i), state<Lane>(slot.second, i),
                                      state<Lane>(slot.second_max, i), size});
            });
        });
    });
}

}  // namespace axle::inline v0::kernels

#endif  // HWY_ONCE
