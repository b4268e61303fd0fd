// The layers and directions of an RNN, LSTM or GRU. Programs use the modules of
// nn/layers/recurrent/recurrent.h.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "nn/layers/recurrent/packed_sequence.h"
#include "nn/module.h"

namespace axle::nn::recurrent {

enum class Cell : std::uint8_t { rnn_tanh, rnn_relu, lstm, gru };

// The parameters of one direction of one layer. H is the hidden size, and G is H times the number
// of gates: 4 H for an LSTM (input, forget, cell and output gate), 3 H for a GRU (reset, update and
// new gate), and H for an RNN. P is H, or the size of the projection of an LSTM.
struct Weights {
    Tensor ih;                // [G, in]
    Tensor hh;                // [G, P]
    Tensor bias_ih, bias_hh;  // [G] each, undefined if there are no biases
    Tensor hr;                // [P, H], undefined without projection
};

// The hidden state and, for an LSTM, the cell state.
struct State {
    Tensor h, c;
};

struct Options {
    std::int64_t num_layers = 1;
    bool bias = true;
    bool batch_first = false;
    double dropout = 0;
    bool bidirectional = false;
    std::int64_t proj_size = 0;
};

// The parameters and the computation of all layers.
class Stack {
  public:
    // Initializes the parameters from a uniform distribution in [-b, b) with b = 1 / sqrt(hidden).
    // Throws ValueError for sizes that are not positive, a dropout outside of [0, 1], and a
    // proj_size that is negative or not below `hidden`. Error messages begin with `who`.
    Stack(const char* who, Cell cell, std::int64_t in, std::int64_t hidden, Options options);

    // Implement forward() of the modules. Undefined states mean zeros.
    std::pair<Tensor, State> forward(const Tensor& x, const State& initial, bool training) const;
    std::pair<PackedSequence, State> forward(const PackedSequence& x, const State& initial,
                                             bool training) const;
    void visit(Visitor& v);
    // Returns the parameters of one direction of a layer. Throws IndexError if there is no such
    // layer or direction.
    Weights& weights(std::int64_t layer, bool reverse);

    std::int64_t input_size() const { return in_; }
    std::int64_t hidden_size() const { return hidden_; }
    const Options& options() const { return options_; }

  private:
    std::int64_t directions() const { return options_.bidirectional ? 2 : 1; }
    std::int64_t output_width() const {
        return options_.proj_size > 0 ? options_.proj_size : hidden_;
    }
    Tensor state(const Tensor& given, const char* name, std::int64_t batch, std::int64_t width,
                 bool unbatched, const Tensor& x) const;
    State initial_state(const State& given, std::int64_t batch, bool unbatched,
                        const Tensor& x) const;
    std::pair<Tensor, State> run(Tensor x, const std::vector<std::int64_t>& sizes,
                                 const State& initial, bool training) const;

    const char* who_;
    Cell cell_;
    std::int64_t in_, hidden_;
    Options options_;
    std::vector<Weights> weights_;  // layer 0, layer 0 reversed, layer 1, ...
};

}  // namespace axle::nn::recurrent
