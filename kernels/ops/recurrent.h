// One step of recurrent cells without its products: activations and products of the gates.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// The formulas are in kernels/rules/recurrent_rules.inl. All views are 2-d, have one floating
// dtype and any strides; no output may overlap an input. Numbers are computed in f32, or in f64 for
// f64. B is the batch size and H the hidden size.

// Computes the next h and c of an LSTM cell. from_x and from_h are the results of the linear layers
// of x and h, [B, 4H] (input, forget, cell and output gate). The other views are [B, H].
void lstm_step(Cpu& on, ConstView from_x, ConstView from_h, ConstView c, View next_h, View next_c);
void lstm_step(Cuda& on, ConstView from_x, ConstView from_h, ConstView c, View next_h, View next_c);
// Computes dgates [B, 4H], the gradient of from_x and of from_h, and dc [B, H] from the gradients
// of the next h and c.
void lstm_step_backward(Cpu& on, ConstView from_x, ConstView from_h, ConstView c, ConstView dnext_h,
                        ConstView dnext_c, View dgates, View dc);
void lstm_step_backward(Cuda& on, ConstView from_x, ConstView from_h, ConstView c,
                        ConstView dnext_h, ConstView dnext_c, View dgates, View dc);

// Computes the next h of a GRU cell. from_x and from_h are the results of the linear layers of x
// and h, [B, 3H] (reset, update and new gate). The other views are [B, H].
void gru_step(Cpu& on, ConstView from_x, ConstView from_h, ConstView h, View next_h);
void gru_step(Cuda& on, ConstView from_x, ConstView from_h, ConstView h, View next_h);
// Computes the gradients of from_x and from_h [B, 3H] and of h [B, H] from the gradient of the next
// h.
void gru_step_backward(Cpu& on, ConstView from_x, ConstView from_h, ConstView h, ConstView dnext_h,
                       View dfrom_x, View dfrom_h, View dh);
void gru_step_backward(Cuda& on, ConstView from_x, ConstView from_h, ConstView h, ConstView dnext_h,
                       View dfrom_x, View dfrom_h, View dh);

}  // namespace axle::kernels
