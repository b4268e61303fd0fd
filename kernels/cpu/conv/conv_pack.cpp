// Copies elements into the panels of a convolution in full vectors. The last vector of a run can
// write beyond the end of the run; the next run or line overwrites these elements. A line of a
// panel is written once, and read by every register tile that uses the panel.
#include "kernels/cpu/conv/conv.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/conv_pack.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

static_assert(Pack::kLanes <= kPanelSlack);

template <class T>
HWY_INLINE void copy_runs(const PanelRun* runs, std::int64_t run_count, const T* from, T* to) {
    const hn::ScalableTag<T> d;
    constexpr std::int64_t kLanes = hn::MaxLanes(d);
    for (const PanelRun* run = runs; run != runs + run_count; ++run) {
        const T* source = from + run->from;
        T* target = to + run->to;
        for (std::int64_t i = 0; i < run->count; i += kLanes)
            hn::StoreU(hn::LoadU(d, source + i), d, target + i);
    }
}

template <class T>
void pack_taps(const PanelRun* runs, std::int64_t run_count, const T* source, std::int64_t channels,
               std::int64_t channel_step, const std::int64_t* tap, std::int64_t taps,
               std::int64_t width, T* to) {
    for (std::int64_t c = 0; c < channels; ++c, source += channel_step)
        for (std::int64_t t = 0; t < taps; ++t, to += width)
            copy_runs(runs, run_count, source + tap[t], to);
}

template <class T>
void pack_lines(const PanelRun* runs, std::int64_t run_count, const T* source, std::int64_t step,
                std::int64_t n, std::int64_t width, T* to) {
    for (std::int64_t p = 0; p < n; ++p, source += step, to += width)
        copy_runs(runs, run_count, source, to);
}

template <class T>
void add(const T* from, std::int64_t n, T* to) {
    const hn::ScalableTag<T> d;
    constexpr std::int64_t kLanes = hn::MaxLanes(d);
    for (std::int64_t i = 0; i < n; i += kLanes)
        hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
}

ConvKernels<float> conv_f32() { return {&pack_taps<float>, &pack_lines<float>, &add<float>}; }
ConvKernels<double> conv_f64() { return {&pack_taps<double>, &pack_lines<double>, &add<double>}; }

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace axle::kernels {
namespace {
AXLE_DISPATCH(conv_f32);
AXLE_DISPATCH(conv_f64);
}  // namespace

template <>
const ConvKernels<float>& conv_kernels<float>() {
    static const ConvKernels<float> kernels = AXLE_CALL(conv_f32)();
    return kernels;
}
template <>
const ConvKernels<double>& conv_kernels<double>() {
    static const ConvKernels<double> kernels = AXLE_CALL(conv_f64)();
    return kernels;
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
