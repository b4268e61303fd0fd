#include "nn/layers/recurrent/recurrent.h"

namespace axle::nn {
namespace {

using recurrent::Cell;

Cell cell_of(RecurrentNonlinearity nonlinearity) {
    return nonlinearity == RecurrentNonlinearity::relu ? Cell::rnn_relu : Cell::rnn_tanh;
}

}  // namespace

RNN::RNN(std::int64_t input_size, std::int64_t hidden_size, RNNOptions options)
    : layers_("RNN", cell_of(options.nonlinearity), input_size, hidden_size,
              {options.num_layers, options.bias, options.batch_first, options.dropout,
               options.bidirectional}) {}

std::pair<Tensor, Tensor> RNN::forward(const Tensor& x, const Tensor& h0) {
    auto [y, last] = layers_.forward(x, {h0, {}}, is_training());
    return {y, last.h};
}

std::pair<PackedSequence, Tensor> RNN::forward(const PackedSequence& x, const Tensor& h0) {
    auto [y, last] = layers_.forward(x, {h0, {}}, is_training());
    return {y, last.h};
}

LSTM::LSTM(std::int64_t input_size, std::int64_t hidden_size, LSTMOptions options)
    : layers_("LSTM", Cell::lstm, input_size, hidden_size,
              {options.num_layers, options.bias, options.batch_first, options.dropout,
               options.bidirectional, options.proj_size}) {}

std::pair<Tensor, LSTMState> LSTM::operator()(const Tensor& x, const LSTMState& initial) {
    return Model::operator()(x, initial);
}

std::pair<PackedSequence, LSTMState> LSTM::operator()(const PackedSequence& x,
                                                      const LSTMState& initial) {
    return Model::operator()(x, initial);
}

std::pair<Tensor, LSTMState> LSTM::forward(const Tensor& x, const LSTMState& initial) {
    auto [y, last] = layers_.forward(x, {initial.h, initial.c}, is_training());
    return {y, {last.h, last.c}};
}

std::pair<PackedSequence, LSTMState> LSTM::forward(const PackedSequence& x,
                                                   const LSTMState& initial) {
    auto [y, last] = layers_.forward(x, {initial.h, initial.c}, is_training());
    return {y, {last.h, last.c}};
}

GRU::GRU(std::int64_t input_size, std::int64_t hidden_size, GRUOptions options)
    : layers_("GRU", Cell::gru, input_size, hidden_size,
              {options.num_layers, options.bias, options.batch_first, options.dropout,
               options.bidirectional}) {}

std::pair<Tensor, Tensor> GRU::forward(const Tensor& x, const Tensor& h0) {
    auto [y, last] = layers_.forward(x, {h0, {}}, is_training());
    return {y, last.h};
}

std::pair<PackedSequence, Tensor> GRU::forward(const PackedSequence& x, const Tensor& h0) {
    auto [y, last] = layers_.forward(x, {h0, {}}, is_training());
    return {y, last.h};
}

}  // namespace axle::nn
