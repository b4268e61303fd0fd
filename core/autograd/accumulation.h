// Private to core: sums of gradients in a backward pass and in leaves.
#pragma once

#include "core/autograd/autograd_meta.h"

namespace axle::autograd {

// Computes sum += g; an undefined sum becomes g. The memory of sum is overwritten only if no other
// handle refers to it.
void add_to(Tensor& sum, Tensor g, bool create_graph);

// Called by gradient rules. Returns the sum of the gradients that earlier rules of this pass have
// returned for an input of the running node, if the rule can add its gradient to this sum in place.
// The rule must then return an undefined gradient for the input. Returns nullptr otherwise: if
// there is no such sum, if the input is not a leaf, or if gradients are recorded or checked for
// NaN.
Tensor* sum_to_extend(int input);

// Converts the gradient g to the shape and dtype of the edge's input: sums over broadcast
// dimensions and reverses casts. The gradient of a half-precision leaf is accumulated in f32.
// Throws ShapeError, with the op of the rule, if the shape of g cannot be reduced to that of the
// input.
Tensor fit_to_input(const char* op, Tensor g, const Edge& edge);

// Adds g to the gradient of a tensor. An undefined gradient becomes g or, without create_graph, a
// copy of g unless g is contiguous and no other handle refers to its memory.
void accumulate_grad(Tensor& grad, Tensor g, bool create_graph);

}  // namespace axle::autograd
