// Steps of recurrent cells. Each row of the state is computed in pieces that fit in the L1 cache,
// all gates of a piece at once.
#include "kernels/ops/recurrent.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/recurrent/recurrent.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/pointwise/formulas-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {
namespace formula {
#include "kernels/rules/recurrent_rules.inl"
}  // namespace formula

// Applies the formula of a step to n elements of each operand.
template <class Step>
HWY_INLINE void apply(const float* const* in, float* const* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += Pack::kLanes) {
        Pack from[Step::kIn], to[Step::kOut];
        const std::int64_t rest = n - i;
        const bool is_whole = rest >= Pack::kLanes;
        for (int k = 0; k < Step::kIn; ++k)
            from[k] = is_whole ? Pack::load(in[k] + i) : Pack::load(in[k] + i, rest);
        Step::apply(from, to);
        for (int k = 0; k < Step::kOut; ++k)
            if (is_whole)
                to[k].store(out[k] + i);
            else
                to[k].store(out[k] + i, rest);
    }
}

void lstm_lanes(const float* const* in, float* const* out, std::int64_t n) {
    apply<formula::LstmStep>(in, out, n);
}
void lstm_backward_lanes(const float* const* in, float* const* out, std::int64_t n) {
    apply<formula::LstmStepBackward>(in, out, n);
}
void gru_lanes(const float* const* in, float* const* out, std::int64_t n) {
    apply<formula::GruStep>(in, out, n);
}
void gru_backward_lanes(const float* const* in, float* const* out, std::int64_t n) {
    apply<formula::GruStepBackward>(in, out, n);
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <initializer_list>

#include "kernels/cpu/lanes.h"
#include "kernels/ops/pointwise.h"
#include "kernels/rules/gates.h"
#include "kernels/thread_pool.h"

namespace axle::kernels {
namespace formula {
#include "kernels/rules/recurrent_rules.inl"
}  // namespace formula
namespace {

AXLE_DISPATCH(lstm_lanes);
AXLE_DISPATCH(lstm_backward_lanes);
AXLE_DISPATCH(gru_lanes);
AXLE_DISPATCH(gru_backward_lanes);

using Lanes = void (*)(const float* const* in, float* const* out, std::int64_t n);

constexpr std::int64_t kPiece = 128;   // elements of a row that are computed at a time
constexpr std::int64_t kGrain = 4096;  // elements of the state per task

template <class Step>
void compute(Lanes lanes, const float* const* in, float* const* out, std::int64_t n) {
    lanes(in, out, n);
}
template <class Step>
void compute(Lanes, const double* const* in, double* const* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        double from[Step::kIn], to[Step::kOut];
        for (int k = 0; k < Step::kIn; ++k) from[k] = in[k][i];
        Step::apply(from, to);
        for (int k = 0; k < Step::kOut; ++k) out[k][i] = to[k];
    }
}

// Returns the address of element `column` of a row.
template <class AnyView>
auto* element(const AnyView& view, std::int64_t row, std::int64_t column) {
    return at(view.data, view.dtype, row * view.stride[0] + column * view.stride[1]);
}

// Computes a step for all elements of the state. The state has the shape of the last input.
template <class Step>
void run(Lanes lanes, std::initializer_list<ConstView> inputs,
         std::initializer_list<View> outputs) {
    const ConstView& state = *(inputs.end() - 1);
    const std::int64_t rows = state.shape[0], hidden = state.shape[1];
    if (rows * hidden == 0) return;
    const auto in = split_gates<Step::kIn>(inputs, hidden);
    const auto out = split_gates<Step::kOut>(outputs, hidden);
    const DType dtype = state.dtype;
    visit_f32_f64(lane_dtype(dtype), [&]<class Lane>() {
        parallel_ranges(rows, std::max<std::int64_t>(1, kGrain / hidden),
                        [&](std::int64_t begin, std::int64_t end) {
                            Lane buffers[Step::kIn + Step::kOut][kPiece];
                            const Lane* from[Step::kIn];
                            Lane* to[Step::kOut];
                            for (std::int64_t row = begin; row < end; ++row)
                                for (std::int64_t i = 0; i < hidden; i += kPiece) {
                                    const std::int64_t n = std::min(kPiece, hidden - i);
                                    for (int k = 0; k < Step::kIn; ++k)
                                        from[k] = load_lanes<Lane>(element(in[k], row, i), dtype,
                                                                   in[k].stride[1], n, buffers[k]);
                                    for (int k = 0; k < Step::kOut; ++k)
                                        to[k] = is_lanes<Lane>(dtype, out[k].stride[1], n)
                                                    ? static_cast<Lane*>(element(out[k], row, i))
                                                    : buffers[Step::kIn + k];
                                    compute<Step>(lanes, from, to, n);
                                    for (int k = 0; k < Step::kOut; ++k)
                                        store_lanes<Lane>(to[k], element(out[k], row, i), dtype,
                                                          out[k].stride[1], n);
                                }
                        });
    });
}

}  // namespace

void lstm_step(Cpu&, ConstView from_x, ConstView from_h, ConstView c, View next_h, View next_c) {
    run<formula::LstmStep>(AXLE_CALL(lstm_lanes), {from_x, from_h, c}, {next_h, next_c});
}

void lstm_step_backward(Cpu&, ConstView from_x, ConstView from_h, ConstView c, ConstView dnext_h,
                        ConstView dnext_c, View dgates, View dc) {
    run<formula::LstmStepBackward>(AXLE_CALL(lstm_backward_lanes),
                                   {from_x, from_h, c, dnext_h, dnext_c}, {dgates, dc});
}

void gru_step(Cpu&, ConstView from_x, ConstView from_h, ConstView h, View next_h) {
    run<formula::GruStep>(AXLE_CALL(gru_lanes), {from_x, from_h, h}, {next_h});
}

void gru_step_backward(Cpu&, ConstView from_x, ConstView from_h, ConstView h, ConstView dnext_h,
                       View dfrom_x, View dfrom_h, View dh) {
    run<formula::GruStepBackward>(AXLE_CALL(gru_backward_lanes), {from_x, from_h, h, dnext_h},
                                  {dfrom_x, dfrom_h, dh});
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
