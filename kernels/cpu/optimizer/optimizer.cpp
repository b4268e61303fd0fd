// Optimizer steps, with one pass over memory. The parameter, its gradient and its state are read
// once per element, and the parameter and its state are written once. For AdamW in f32, these are
// 16 bytes and 12 bytes. Unscaling, clipping and weight decay are done in registers. Values that
// depend on a group or on a slot's step count, such as bias corrections, are computed once per slot
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
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include <hwy/cache_control.h>

#include "kernels/cpu/optimizer/update_span.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/rules/optimizer_steps.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

#include "kernels/rules/optimizer_rules.inl"

// Updates the pack of elements that begins at i, or only its first `rest` elements.
template <class Rule, int kMode, class... Rest>
HWY_INLINE void update_pack(const typename Rule::template Factors<Pack>& k,
                            const UpdateSpan<float>& span, std::int64_t i, Rest... rest) {
    constexpr unsigned kArrays = Rule::arrays(kMode);
    Pack p = Pack::load(span.p + i, rest...), s[3] = {Pack(0.0f), Pack(0.0f), Pack(0.0f)};
    if constexpr ((kArrays & 1U) != 0) s[0] = Pack::load(span.state[0] + i, rest...);
    if constexpr ((kArrays & 2U) != 0) s[1] = Pack::load(span.state[1] + i, rest...);
    if constexpr ((kArrays & 4U) != 0) s[2] = Pack::load(span.state[2] + i, rest...);
    update(kMode, k, Pack::load(span.g + i, rest...), p, s);
    if constexpr ((kArrays & 1U) != 0) s[0].store(span.state[0] + i, rest...);
    if constexpr ((kArrays & 2U) != 0) s[1].store(span.state[1] + i, rest...);
    if constexpr ((kArrays & 4U) != 0) s[2].store(span.state[2] + i, rest...);
    p.store(span.p + i, rest...);
}

template <class Rule, int kMode>
HWY_INLINE void update_in_mode(const StepOf<Rule>& step, const UpdateSpan<float>& span) {
    const auto k = factors_in<Rule, Pack>(step);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= span.n; i += Pack::kLanes) {
        hwy::Prefetch(span.p + i + kPrefetch);
        hwy::Prefetch(span.g + i + kPrefetch);
        for (unsigned a = 0; a < 3; ++a)
            if ((Rule::arrays(kMode) >> a & 1U) != 0) hwy::Prefetch(span.state[a] + i + kPrefetch);
        update_pack<Rule, kMode>(k, span, i);
    }
    if (i < span.n) update_pack<Rule, kMode>(k, span, i, span.n - i);
}

template <class Rule, int kMode>
HWY_INLINE void update_in_mode(const StepOf<Rule>& step, const UpdateSpan<double>& span) {
    constexpr unsigned kArrays = Rule::arrays(kMode);
    const auto k = factors_in<Rule, double>(step);
    for (std::int64_t i = 0; i < span.n; ++i) {
        double s[3] = {};
        for (unsigned a = 0; a < 3; ++a)
            if ((kArrays >> a & 1U) != 0) s[a] = span.state[a][i];
        update(kMode, k, span.g[i], span.p[i], s);
        for (unsigned a = 0; a < 3; ++a)
            if ((kArrays >> a & 1U) != 0) span.state[a][i] = s[a];
    }
}

template <class Rule, class Lane, int kMode = 0>
HWY_INLINE void update_lanes(const SlotStep& step, const UpdateSpan<Lane>& span) {
    if (step.mode == kMode)
        return update_in_mode<Rule, kMode>(static_cast<const StepOf<Rule>&>(step), span);
    if constexpr (kMode + 1 < Rule::kModes) update_lanes<Rule, Lane, kMode + 1>(step, span);
}

#define AXLE_LANES(Rule, NAME)                                              \
    void NAME##_f32(const SlotStep& step, const UpdateSpan<float>& span) {  \
        update_lanes<Rule>(step, span);                                     \
    }                                                                       \
    void NAME##_f64(const SlotStep& step, const UpdateSpan<double>& span) { \
        update_lanes<Rule>(step, span);                                     \
    }
AXLE_OPTIMIZER_RULES(AXLE_LANES)
#undef AXLE_LANES

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <cstddef>
#include <type_traits>

#include "kernels/cpu/chunks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/pointwise/rounding.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

// The functions that update a span with one rule.
struct Update {
    void (*f32)(const SlotStep& step, const UpdateSpan<float>& span);
    void (*f64)(const SlotStep& step, const UpdateSpan<double>& span);

    void operator()(const SlotStep& step, const UpdateSpan<float>& span) const { f32(step, span); }
    void operator()(const SlotStep& step, const UpdateSpan<double>& span) const { f64(step, span); }
};

template <class Lane>
Lane* lanes_at(void* data, std::int64_t offset) {
    return data ? static_cast<Lane*>(data) + offset : nullptr;
}

// Stores n elements of the slot's parameter, beginning with element `offset`. A 16-bit parameter is
// rounded stochastically if slot.stochastic is true.
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

// Updates all slots. `steps` has the step of slot i, an object of `size` bytes that derives from
// SlotStep, at i * size. This code is independent of the rule, and so it is compiled once.
void update_slots(std::span<const Slot> slots, const SlotStep* steps, std::size_t size,
                  const Update& update) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(steps);
    for_each_stretch(slots, [&](std::int64_t, const Slot& slot, std::int64_t from, std::int64_t n) {
        const auto index = static_cast<std::size_t>(&slot - slots.data());
        const auto& step = *reinterpret_cast<const SlotStep*>(bytes + index * size);
        visit_lane(slot, [&]<class Lane>() {
            with_lanes<Lane>(slot, rounding_random(slot, step), from, n,
                             [&](Lane* p, const Lane* g, std::int64_t i, std::int64_t count) {
                                 update(step, UpdateSpan<Lane>{p,
                                                               g,
                                                               {lanes_at<Lane>(slot.state[0], i),
                                                                lanes_at<Lane>(slot.state[1], i),
                                                                lanes_at<Lane>(slot.state[2], i)},
                                                               count});
                             });
        });
    });
}

// Computes the steps of all slots and updates them. Does nothing if the scalars skip the step.
template <class Rule>
void step_slots(Cpu& on, std::span<const Slot> slots, const typename Rule::Group* groups,
                const StepScalars* scalars, const Update& update) {
    if (is_skipped(scalars)) return;
    Scratch scratch(on);
    auto* const steps = scratch.take<StepOf<Rule>>(static_cast<std::int64_t>(slots.size()));
    for (std::size_t i = 0; i < slots.size(); ++i)
        steps[i] = step_of<Rule>(slots[i], groups[slots[i].group], scalars);
    update_slots(slots, steps, sizeof *steps, update);
}

}  // namespace

#define AXLE_KERNEL(Rule, NAME)                                                \
    AXLE_DISPATCH(NAME##_f32);                                                 \
    AXLE_DISPATCH(NAME##_f64);                                                 \
    void NAME(Cpu& on, std::span<const Slot> slots, const Rule::Group* groups, \
              const StepScalars* scalars) {                                    \
        step_slots<Rule>(on, slots, groups, scalars,                           \
                         {AXLE_CALL(NAME##_f32), AXLE_CALL(NAME##_f64)});      \
    }
AXLE_OPTIMIZER_RULES(AXLE_KERNEL)

}  // namespace axle::kernels

#endif  // HWY_ONCE
