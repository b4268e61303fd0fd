#include "nn/layers/recurrent/cells.h"

#include <cmath>

#include "nn/init.h"
#include "nn/layers/recurrent/layer.h"

namespace axle::nn {
namespace {

using recurrent::Cell;

// Creates the parameters of a cell in the order of PyTorch. Throws ValueError unless the sizes are
// positive.
void make_parameters(const char* who, Cell cell, std::int64_t in, std::int64_t hidden, bool bias,
                     std::initializer_list<Tensor*> tensors) {
    if (in < 1 || hidden < 1)
        throw ValueError(
            str(who, ": sizes must be positive: input_size ", in, ", hidden_size ", hidden));
    const double bound = 1 / std::sqrt(static_cast<double>(hidden));
    const std::int64_t rows = recurrent::gates_of(cell) * hidden;
    const Shape shapes[] = {{rows, in}, {rows, hidden}, {rows}, {rows}};
    int i = 0;
    for (Tensor* const t : tensors) {
        if (i >= 2 && !bias) return;
        *t = init::parameter(shapes[i++]);
        init::uniform_(*t, -bound, bound);
    }
}

template <class Layer>
void visit_parameters(Layer& layer, Visitor& v) {
    v("weight_ih", layer.weight_ih), v("weight_hh", layer.weight_hh);
    v("bias_ih", layer.bias_ih), v("bias_hh", layer.bias_hh);
}

template <class Layer>
recurrent::State next_state(const char* who, Cell cell, const Layer& layer, const Tensor& x,
                            const recurrent::State& state) {
    const std::int64_t in = layer.weight_ih.size(1), hidden = layer.weight_hh.size(1);
    if (!x.defined() || (x.dim() != 1 && x.dim() != 2) || x.size(-1) != in)
        throw ShapeError(str(who, ": x must be [batch, ", in, "] or [", in, "]: x is ",
                             x.defined() ? str(x.shape()) : "undefined"));
    const bool unbatched = x.dim() == 1;
    const auto rows = [&](const Tensor& t, const char* name) {
        const Shape shape = unbatched ? Shape{hidden} : Shape{x.size(0), hidden};
        if (!t.defined())
            return zeros({unbatched ? 1 : x.size(0), hidden}, {x.dtype(), x.device()});
        if (t.shape() != shape)
            throw ShapeError(str(who, ": ", name, " must be ", shape, ": it is ", t.shape()));
        return unbatched ? t.unsqueeze(0) : t;
    };
    const recurrent::Weights weights{
        layer.weight_ih, layer.weight_hh, layer.bias_ih, layer.bias_hh, {}};
    recurrent::State before{rows(state.h, "h"), {}};
    if (cell == Cell::lstm) before.c = rows(state.c, "c");
    const Tensor input = input_product(cell, unbatched ? x.unsqueeze(0) : x, weights);
    recurrent::State next = step(cell, input, weights, converted(before, input.dtype()));
    if (!unbatched) return next;
    return {next.h.squeeze(0), next.c.defined() ? next.c.squeeze(0) : Tensor()};
}

}  // namespace

RNNCell::RNNCell(std::int64_t input_size, std::int64_t hidden_size, RNNCellOptions options)
    : nonlinearity_(options.nonlinearity) {
    make_parameters("RNNCell", Cell::rnn_tanh, input_size, hidden_size, options.bias,
                    {&weight_ih, &weight_hh, &bias_ih, &bias_hh});
}
void RNNCell::visit(Visitor& v) { visit_parameters(*this, v); }
Tensor RNNCell::forward(const Tensor& x, const Tensor& h) {
    const Cell cell =
        nonlinearity_ == RecurrentNonlinearity::relu ? Cell::rnn_relu : Cell::rnn_tanh;
    return next_state("RNNCell", cell, *this, x, {h, {}}).h;
}

LSTMCell::LSTMCell(std::int64_t input_size, std::int64_t hidden_size, CellOptions options) {
    make_parameters("LSTMCell", Cell::lstm, input_size, hidden_size, options.bias,
                    {&weight_ih, &weight_hh, &bias_ih, &bias_hh});
}
void LSTMCell::visit(Visitor& v) { visit_parameters(*this, v); }
LSTMState LSTMCell::operator()(const Tensor& x, const LSTMState& state) {
    return Model::operator()(x, state);
}
LSTMState LSTMCell::forward(const Tensor& x, const LSTMState& state) {
    const recurrent::State next = next_state("LSTMCell", Cell::lstm, *this, x, {state.h, state.c});
    return {next.h, next.c};
}

GRUCell::GRUCell(std::int64_t input_size, std::int64_t hidden_size, CellOptions options) {
    make_parameters("GRUCell", Cell::gru, input_size, hidden_size, options.bias,
                    {&weight_ih, &weight_hh, &bias_ih, &bias_hh});
}
void GRUCell::visit(Visitor& v) { visit_parameters(*this, v); }
Tensor GRUCell::forward(const Tensor& x, const Tensor& h) {
    return next_state("GRUCell", Cell::gru, *this, x, {h, {}}).h;
}

}  // namespace axle::nn
