// Optimizer steps, with one pass over memory. The parameter, its gradient and its state are read
// once per element, and the parameter and its state are written once (for AdamW in f32, 16 bytes
// are read and 12 are written); unscaling, clipping and weight decay are done in registers. Values
// that depend on a group or on a slot's step count (bias corrections) are computed once per slot
// before the work is split. 16-bit parameters and gradients are converted through blocks of f32
// lanes that stay in L1.
#include "kernels/ops/optimizer.h"

#include "kernels/exec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer/optimizer.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <cmath>

#include "kernels/cpu/optimizer/optimizer_spans.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/rules/optimizer_steps.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

#include "kernels/rules/optimizer_rules.inl"

// Updates the pack of elements that begins at i, or only its first `rest` elements.
template <SgdKind kKind, class... Rest>
HWY_INLINE void sgd_pack(const SgdFactors<Pack>& k, const SgdSpan<float>& s, std::int64_t i,
                         Rest... rest) {
    Pack p = Pack::load(s.p + i, rest...), b = Pack(0.0f);
    if constexpr (kKind != SgdKind::plain) b = Pack::load(s.b + i, rest...);
    sgd_update(kKind, k, Pack::load(s.g + i, rest...), p, b);
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
        sgd_update(kKind, k, s.g[i], s.p[i], kKind == SgdKind::plain ? none : s.b[i]);
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
    adam_update(kAmsgrad, k, Pack::load(s.g + i, rest...), p, m, v, largest);
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
            adam_update(true, k, s.g[i], s.p[i], s.m[i], s.v[i], s.largest[i]);
        else
            adam_update(false, k, s.g[i], s.p[i], s.m[i], s.v[i], unused);
    }
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <type_traits>

#include "kernels/cpu/chunks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/pointwise/rounding.h"
#include "kernels/walk.h"

namespace axle::kernels {
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

// Stores n elements of the slot's parameter, beginning with element `offset`.
template <class Lane>
void store_parameter(const Slot& slot, const Philox& draws, const Lane* p, std::int64_t offset,
                     std::int64_t n) {
    void* const to = at(slot.param, slot.param_dtype, offset);
    if constexpr (std::is_same_v<Lane, float>)
        if (slot.stochastic && is_half(slot.param_dtype))
            return store_stochastically(p, to, slot.param_dtype, draws, slot.first_element + offset,
                                        n);
    store_lanes<Lane>(p, to, slot.param_dtype, 1, n);
}

// Calls body(p, g, offset, n) with the parameter (or its master copy) and the gradient as lanes,
// then stores p to the parameter. If no conversion is needed, calls body once, otherwise block by
// block.
template <class Lane, class Body>
void with_lanes(const Slot& slot, const Philox& draws, std::int64_t offset, std::int64_t n,
                Body&& body) {
    void* storage = slot.master ? slot.master : slot.param;
    const DType storage_dtype = slot.master ? DType::f32 : slot.param_dtype;
    const bool direct = slot.param_dtype == dtype_of<Lane> && slot.grad_dtype == dtype_of<Lane>;
    Lane p_buffer[kBlock], g_buffer[kBlock];
    for (const std::int64_t end = offset + n; offset < end; offset += n) {
        n = direct ? end - offset : std::min(kBlock, end - offset);
        const Lane* g = load_lanes<Lane>(at(slot.grad, slot.grad_dtype, offset), slot.grad_dtype, 1,
                                         n, g_buffer);
        void* stored = at(storage, storage_dtype, offset);
        Lane* p = p_buffer;
        if (storage_dtype == dtype_of<Lane>)
            p = static_cast<Lane*>(stored);
        else
            load_lanes<Lane>(stored, storage_dtype, 1, n, p_buffer);
        body(p, g, offset, n);
        store_parameter(slot, draws, p, offset, n);
    }
}

// Calls f.template operator()<Lane>() with the type in which a slot is computed (float or double).
template <class F>
void visit_lane(const Slot& slot, F&& f) {
    if (slot.param_dtype == DType::f64) return f.template operator()<double>();
    f.template operator()<float>();
}

// Computes the steps of all slots, then calls body(step, slot, p, g, offset, n) for the lanes of
// all slots. Does nothing if the scalars skip the step.
template <class Step, class Group, class Body>
void update_slots(Cpu& on, std::span<const Slot> slots, const Group* groups,
                  const StepScalars* scalars, Body&& body) {
    if (is_skipped(scalars)) return;
    Scratch scratch(on);
    Step* const steps = scratch.take<Step>(static_cast<std::int64_t>(slots.size()));
    for (std::size_t i = 0; i < slots.size(); ++i)
        steps[i] = step_of(slots[i], groups[slots[i].group], scalars);
    for_each_stretch(slots, [&](std::int64_t, const Slot& slot, std::int64_t from, std::int64_t n) {
        const Step& step = steps[&slot - slots.data()];
        visit_lane(slot, [&]<class Lane>() {
            with_lanes<Lane>(slot, rounding_random(slot, step), from, n,
                             [&](Lane* p, const Lane* g, std::int64_t i, std::int64_t count) {
                                 body(step, slot, p, g, i, count);
                             });
        });
    });
}

}  // namespace

void sgd(Cpu& on, std::span<const Slot> slots, const SgdGroup* groups, const StepScalars* scalars) {
    update_slots<SgdStep>(on, slots, groups, scalars,
                          []<class Lane>(const SgdStep& step, const Slot& slot, Lane* p,
                                         const Lane* g, std::int64_t i, std::int64_t n) {
                              update(step, SgdSpan<Lane>{p, g, state<Lane>(slot.first, i), n});
                          });
}

void adam(Cpu& on, std::span<const Slot> slots, const AdamGroup* groups,
          const StepScalars* scalars) {
    update_slots<AdamStep>(on, slots, groups, scalars,
                           []<class Lane>(const AdamStep& step, const Slot& slot, Lane* p,
                                          const Lane* g, std::int64_t i, std::int64_t n) {
                               update(step, AdamSpan<Lane>{p, g, state<Lane>(slot.first, i),
                                                           state<Lane>(slot.second, i),
                                                           state<Lane>(slot.second_max, i), n});
                           });
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
