// Private to core: the hooks that autograd::register_hook() and autograd::retain_grad() add to a
// tensor.
#pragma once

#include "core/autograd/autograd_meta.h"

namespace axle::autograd {

// Replaces the gradients of the node's outputs by the results of their hooks. Undefined gradients
// stay undefined.
void call_hooks(const Node& node, Grads& dy);
// Returns the gradient of the leaf as its hooks return it.
Tensor call_hooks(const Meta& leaf, Tensor gradient);
// Adds the gradients of the outputs for which retain_grad() was called to their grad().
void retain_gradients(const Node& node, const Grads& dy, bool create_graph);

}  // namespace axle::autograd
