// Private to nn: one step of recurrent cells after the products with the weights, as one kernel.
#pragma once

#include <utility>

#include "core/tensor.h"

namespace axle {

// Return the next state. from_x and from_h are the products of the input and of the hidden state
// with the weights, including biases. Gradients can be differentiated again. Throw ShapeError if
// sizes do not match, and DTypeError unless all tensors have one floating dtype.

// from_x and from_h are [B, 4H], the input, forget, cell and output gates of PyTorch's nn.LSTM, and
// c is [B, H]. Returns the next h and c.
std::pair<Tensor, Tensor> lstm_step(const Tensor& from_x, const Tensor& from_h, const Tensor& c);

// from_x and from_h are [B, 3H], the reset, update and new gates of PyTorch's nn.GRU, and h is
// [B, H].
Tensor gru_step(const Tensor& from_x, const Tensor& from_h, const Tensor& h);

}  // namespace axle
