// Recurrent layers with PyTorch's parameter names, initial values and results: RNN, LSTM and GRU.
//
//     nn::LSTM lstm(8, 16, {.num_layers = 2, .bidirectional = true});
//     const auto [y, state] = lstm(x);        // x [time, batch, 8], y [time, batch, 32]
//     const auto [z, next] = lstm(x, state);  // state.h and state.c are [4, batch, 16]
//
// The following holds for all three layers. x is [time, batch, input_size], or [batch, time,
// input_size] with the option batch_first, or one sequence [time, input_size]. A call returns the
// outputs of the last layer and the last states of all layers. Outputs are [time, batch, D * H], or
// have the layout of x. States are [num_layers * D, batch, H], or [num_layers * D, H] for one
// sequence. H is hidden_size (of an LSTM with projection: proj_size), and D is 2 with the option
// bidirectional and otherwise 1. An initial state has the shape of the last state; if it is
// undefined, it is zero. If x is a PackedSequence, so are the outputs; initial and last states are
// in the original order of the sequences.
//
// The layers throw ShapeError for an x or an initial state of another shape, and for an x without
// time steps. For a PackedSequence, they throw UsageError if its data are undefined, and ValueError
// unless its batch_sizes are positive, do not increase and add up to its rows. Parameters are
// initialized from a uniform distribution in [-b, b) with b = 1 / sqrt(hidden_size). The
// constructors throw ValueError unless sizes and num_layers are positive and dropout is in [0, 1].
#pragma once

#include <cstdint>
#include <utility>

#include "nn/layers/recurrent/packed_sequence.h"
#include "nn/layers/recurrent/stack.h"
#include "nn/module.h"

namespace axle::nn {

enum class RecurrentNonlinearity : std::uint8_t { tanh, relu };

struct RNNOptions {
    std::int64_t num_layers = 1;
    RecurrentNonlinearity nonlinearity = RecurrentNonlinearity::tanh;
    bool bias = true;
    bool batch_first = false;
    double dropout = 0;  // probability of dropout between layers in training mode
    bool bidirectional = false;
};

// An Elman network: h_t = tanh(x_t W_ih^T + b_ih + h_(t-1) W_hh^T + b_hh), or with relu instead of
// tanh.
class RNN : public Model<RNN> {
  public:
    RNN(std::int64_t input_size, std::int64_t hidden_size, RNNOptions options = {});

    std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& h0 = {});
    std::pair<PackedSequence, Tensor> forward(const PackedSequence& x, const Tensor& h0 = {});
    void visit(Visitor& v) override { layers_.visit(v); }

    // Returns the parameters of one direction of a layer. Throws IndexError if there is no such
    // layer or direction.
    recurrent::Weights& weights(std::int64_t layer = 0, bool reverse = false) {
        return layers_.weights(layer, reverse);
    }

  private:
    recurrent::Stack layers_;
};

struct LSTMOptions {
    std::int64_t num_layers = 1;
    bool bias = true;
    bool batch_first = false;
    double dropout = 0;  // probability of dropout between layers in training mode
    bool bidirectional = false;
    std::int64_t proj_size = 0;  // if positive, the hidden state is projected to this size
};

struct LSTMState {
    Tensor h, c;  // hidden state and cell state

    template <class F>
    void visit(F&& f) {
        f("h", h), f("c", c);
    }
};

// Long short-term memory (Hochreiter and Schmidhuber, 1997): c_t = sigmoid(f) c_(t-1) + sigmoid(i)
// tanh(g) and h_t = sigmoid(o) tanh(c_t), where i, f, g and o are the parts of x_t W_ih^T + b_ih +
// h_(t-1) W_hh^T + b_hh. If proj_size is positive, h_t is multiplied by W_hr^T (Sak et al.,
// arXiv:1402.1128); c0 and the last cell state keep the width hidden_size. The constructor also
// throws ValueError unless 0 <= proj_size < hidden_size.
class LSTM : public Model<LSTM> {
  public:
    LSTM(std::int64_t input_size, std::int64_t hidden_size, LSTMOptions options = {});

    std::pair<Tensor, LSTMState> operator()(const Tensor& x, const LSTMState& initial = {});
    std::pair<PackedSequence, LSTMState> operator()(const PackedSequence& x,
                                                    const LSTMState& initial = {});
    std::pair<Tensor, LSTMState> forward(const Tensor& x, const LSTMState& initial = {});
    std::pair<PackedSequence, LSTMState> forward(const PackedSequence& x,
                                                 const LSTMState& initial = {});
    void visit(Visitor& v) override { layers_.visit(v); }

    // Returns the parameters of one direction of a layer. Throws IndexError if there is no such
    // layer or direction.
    recurrent::Weights& weights(std::int64_t layer = 0, bool reverse = false) {
        return layers_.weights(layer, reverse);
    }

  private:
    recurrent::Stack layers_;
};

struct GRUOptions {
    std::int64_t num_layers = 1;
    bool bias = true;
    bool batch_first = false;
    double dropout = 0;  // probability of dropout between layers in training mode
    bool bidirectional = false;
};

// Gated recurrent units (Cho et al., arXiv:1406.1078). As in PyTorch, the reset gate r multiplies
// the product of the hidden state h after the bias is added: the new values are n = tanh(W_in x +
// b_in + r * (W_hn h + b_hn)).
class GRU : public Model<GRU> {
  public:
    GRU(std::int64_t input_size, std::int64_t hidden_size, GRUOptions options = {});

    std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& h0 = {});
    std::pair<PackedSequence, Tensor> forward(const PackedSequence& x, const Tensor& h0 = {});
    void visit(Visitor& v) override { layers_.visit(v); }

    // Returns the parameters of one direction of a layer. Throws IndexError if there is no such
    // layer or direction.
    recurrent::Weights& weights(std::int64_t layer = 0, bool reverse = false) {
        return layers_.weights(layer, reverse);
    }

  private:
    recurrent::Stack layers_;
};

}  // namespace axle::nn
