// Steps of recurrent cells: a thread computes all gates of an element of the state.
#include <initializer_list>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/ops/pointwise.h"
#include "kernels/ops/recurrent.h"
#include "kernels/rules/gates.h"

namespace axle::kernels {
namespace formula {
#include "kernels/rules/recurrent_rules.inl"
}  // namespace formula
namespace {

constexpr int kThreads = 256;

// The gates and states of a step, in the order of Step::apply(). Element (row, column) of one of
// them is at data + row * stride[0] + column * stride[1].
template <class T, int kCount>
struct Gates {
    T* data[kCount];
    std::int64_t stride[kCount][2];

    template <class AnyView>
    explicit Gates(const std::array<AnyView, kCount>& views) {
        for (int k = 0; k < kCount; ++k) {
            const AnyView& view = views[static_cast<std::size_t>(k)];
            data[k] = view.template as<std::remove_const_t<T>>();
            stride[k][0] = view.stride[0], stride[k][1] = view.stride[1];
        }
    }
    __device__ T& operator()(int k, std::int64_t row, std::int64_t column) const {
        return data[k][row * stride[k][0] + column * stride[k][1]];
    }
};

template <class Step, class T>
__global__ void __launch_bounds__(kThreads)
    apply(Gates<const T, Step::kIn> in, Gates<T, Step::kOut> out, std::int64_t rows,
          std::int64_t hidden) {
    for (std::int64_t i = thread_in_grid(); i < rows * hidden; i += threads_in_grid()) {
        const std::int64_t row = i / hidden, column = i - row * hidden;
        Compute<T> from[Step::kIn], to[Step::kOut];
#pragma unroll
        for (int k = 0; k < Step::kIn; ++k) from[k] = static_cast<Compute<T>>(in(k, row, column));
        Step::apply(from, to);
#pragma unroll
        for (int k = 0; k < Step::kOut; ++k) out(k, row, column) = convert<T>(to[k]);
    }
}

// Computes a step for all elements of the state. The state has the shape of the last input.
template <class Step>
void run(Cuda& on, std::initializer_list<ConstView> inputs, std::initializer_list<View> outputs) {
    const ConstView& state = *(inputs.end() - 1);
    const std::int64_t rows = state.shape[0], hidden = state.shape[1];
    if (rows * hidden == 0) return;
    visit_float(state.dtype, [&]<class T>() {
        const Gates<const T, Step::kIn> in(split_gates<Step::kIn>(inputs, hidden));
        const Gates<T, Step::kOut> out(split_gates<Step::kOut>(outputs, hidden));
        start(on, {grid_for(on, rows * hidden, kThreads), kThreads}, &apply<Step, T>, in, out, rows,
              hidden);
    });
}

}  // namespace

void lstm_step(Cuda& on, ConstView from_x, ConstView from_h, ConstView c, View next_h,
               View next_c) {
    run<formula::LstmStep>(on, {from_x, from_h, c}, {next_h, next_c});
}

void lstm_step_backward(Cuda& on, ConstView from_x, ConstView from_h, ConstView c,
                        ConstView dnext_h, ConstView dnext_c, View dgates, View dc) {
    run<formula::LstmStepBackward>(on, {from_x, from_h, c, dnext_h, dnext_c}, {dgates, dc});
}

void gru_step(Cuda& on, ConstView from_x, ConstView from_h, ConstView h, View next_h) {
    run<formula::GruStep>(on, {from_x, from_h, h}, {next_h});
}

void gru_step_backward(Cuda& on, ConstView from_x, ConstView from_h, ConstView h, ConstView dnext_h,
                       View dfrom_x, View dfrom_h, View dh) {
    run<formula::GruStepBackward>(on, {from_x, from_h, h, dnext_h}, {dfrom_x, dfrom_h, dh});
}

}  // namespace axle::kernels
