// Private to nn: the computation of recurrent layers: one step of a cell, and one direction of one
// layer over a batch of sequences.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "nn/layers/recurrent/packed_sequence.h"
#include "nn/layers/recurrent/stack.h"

namespace axle::nn::recurrent {

// Returns the state in `dtype`. Under autocast, states have the dtype of the products.
State converted(const State& state, DType dtype);

// Returns the number of rows of the weights, divided by the hidden size.
std::int64_t gates_of(Cell cell);

// Returns the part of the gates that depends on the input: x weight_ih^T + biases. The bias of the
// hidden state is included unless the cell is a GRU.
Tensor input_product(Cell cell, const Tensor& x, const Weights& weights);
// Returns the next state. `input` is the input_product() of this step [B, gates * H], and the state
// is [B, H]; for an LSTM with projection, state.h is [B, P].
State step(Cell cell, const Tensor& input, const Weights& weights, const State& state);

// Runs one direction of one layer. x [rows, in] has sizes[t] rows for each time step t, and sizes
// are not increasing; `initial` is [sizes[0], H]. Returns the hidden states of all steps [rows, H]
// and the last state of each sequence. For an LSTM with projection, hidden states have the width P.
std::pair<Tensor, State> run(Cell cell, const Tensor& x, const std::vector<std::int64_t>& sizes,
                             const Weights& weights, const State& initial, bool reverse);

// Throws UsageError if sequence.data is undefined, and ValueError unless there is at least one
// batch size, the batch sizes are positive and do not increase, and their sum is the number of rows
// of sequence.data. The messages begin with `who`.
void check_packed(const char* who, const PackedSequence& sequence);

}  // namespace axle::nn::recurrent
