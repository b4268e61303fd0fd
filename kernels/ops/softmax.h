// Softmax and log-softmax over the last dimension, and their backward passes.
//
// All views of a call have one floating dtype, the same shape with at least one dimension, and any
// strides. To use another dimension, callers move it to the end of the view. f16 and bf16 are
// computed in f32 and rounded once. The output can be the same view as an input.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// Computes y = exp(x - max) / sum(exp(x - max)). If a row contains NaN or +inf, or only -inf, its
// result is NaN.
void softmax(Cpu& on, ConstView x, View y);
void softmax(Cuda& on, ConstView x, View y);

// Computes y = x - max - log(sum(exp(x - max))).
void log_softmax(Cpu& on, ConstView x, View y);
void log_softmax(Cuda& on, ConstView x, View y);

// Computes dx = y (dy - sum(dy y)) for y = softmax(x).
void softmax_backward(Cpu& on, ConstView dy, ConstView y, View dx);
void softmax_backward(Cuda& on, ConstView dy, ConstView y, View dx);

// Computes dx = dy - exp(y) sum(dy) for y = log_softmax(x).
void log_softmax_backward(Cpu& on, ConstView dy, ConstView y, View dx);
void log_softmax_backward(Cuda& on, ConstView dy, ConstView y, View dx);

}  // namespace axle::kernels
