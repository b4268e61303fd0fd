// Single steps of recurrent layers, with PyTorch's parameter names and initial values: RNNCell,
// LSTMCell and GRUCell.
//
//     nn::LSTMCell cell(8, 16);
//     nn::LSTMState state;
//     for (std::int64_t t = 0; t < x.size(0); ++t)  // x [time, batch, 8]
//         state = cell(x[t], state);
//
// x is [batch, input_size] or [input_size]. States are [batch, hidden_size] or [hidden_size];
// undefined states are zero. The cells throw ShapeError for other shapes, and the constructors
// ValueError unless both sizes are positive.
#pragma once

#include <cstdint>

#include "nn/layers/recurrent/recurrent.h"
#include "nn/module.h"

namespace axle::nn {

struct RNNCellOptions {
    bool bias = true;
    RecurrentNonlinearity nonlinearity = RecurrentNonlinearity::tanh;
};

// One step of an RNN. forward() returns the next hidden state.
class RNNCell : public Model<RNNCell> {
  public:
    RNNCell(std::int64_t input_size, std::int64_t hidden_size, RNNCellOptions options = {});
    Tensor forward(const Tensor& x, const Tensor& h = {});
    void visit(Visitor& v) override;

    Tensor weight_ih, weight_hh;  // [hidden_size, input_size], [hidden_size, hidden_size]
    Tensor bias_ih, bias_hh;      // [hidden_size] each, undefined if there are no biases

  private:
    RecurrentNonlinearity nonlinearity_;
};

struct CellOptions {
    bool bias = true;
};

// One step of an LSTM. forward() returns the next hidden state and cell state.
class LSTMCell : public Model<LSTMCell> {
  public:
    LSTMCell(std::int64_t input_size, std::int64_t hidden_size, CellOptions options = {});
    LSTMState operator()(const Tensor& x, const LSTMState& state = {});
    LSTMState forward(const Tensor& x, const LSTMState& state = {});
    void visit(Visitor& v) override;

    Tensor weight_ih, weight_hh;  // [4 hidden_size, input_size], [4 hidden_size, hidden_size]
    Tensor bias_ih, bias_hh;      // [4 hidden_size] each, undefined if there are no biases
};

// One step of a GRU. forward() returns the next hidden state.
class GRUCell : public Model<GRUCell> {
  public:
    GRUCell(std::int64_t input_size, std::int64_t hidden_size, CellOptions options = {});
    Tensor forward(const Tensor& x, const Tensor& h = {});
    void visit(Visitor& v) override;

    Tensor weight_ih, weight_hh;  // [3 hidden_size, input_size], [3 hidden_size, hidden_size]
    Tensor bias_ih, bias_hh;      // [3 hidden_size] each, undefined if there are no biases
};

}  // namespace axle::nn
