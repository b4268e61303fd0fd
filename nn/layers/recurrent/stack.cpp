#include "nn/layers/recurrent/stack.h"

#include <cmath>

#include "nn/init.h"
#include "nn/layers/recurrent/layer.h"

namespace axle::nn::recurrent {

Stack::Stack(const char* who, Cell cell, std::int64_t in, std::int64_t hidden, Options options)
    : who_(who), cell_(cell), in_(in), hidden_(hidden), options_(options) {
    if (in < 1 || hidden < 1 || options.num_layers < 1)
        throw ValueError(str(who, ": sizes must be positive: input_size ", in, ", hidden_size ",
                             hidden, ", num_layers ", options.num_layers));
    if (!(options.dropout >= 0 && options.dropout <= 1))
        throw ValueError(str(who, ": dropout must be in [0, 1]: ", options.dropout));
    if (options.proj_size < 0 || options.proj_size >= hidden)
        throw ValueError(str(who, ": proj_size must be in [0, hidden_size): proj_size ",
                             options.proj_size, ", hidden_size ", hidden));
    const double bound = 1 / std::sqrt(static_cast<double>(hidden));
    const auto parameter = [&](const Shape& shape) {
        Tensor t = init::parameter(shape);
        init::uniform_(t, -bound, bound);
        return t;
    };
    const std::int64_t rows = gates_of(cell) * hidden, width = output_width();
    for (std::int64_t i = 0; i < options.num_layers * directions(); ++i) {
        Weights weights;
        weights.ih = parameter({rows, i < directions() ? in : width * directions()});
        weights.hh = parameter({rows, width});
        if (options.bias) weights.bias_ih = parameter({rows});
        if (options.bias) weights.bias_hh = parameter({rows});
        if (options.proj_size > 0) weights.hr = parameter({width, hidden});
        weights_.push_back(std::move(weights));
    }
}

void Stack::visit(Visitor& v) {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        const auto in_layer = i % static_cast<std::size_t>(directions());
        const std::string suffix =
            str("_l", i / static_cast<std::size_t>(directions()), in_layer == 1 ? "_reverse" : "");
        Weights& weights = weights_[i];
        v("weight_ih" + suffix, weights.ih), v("weight_hh" + suffix, weights.hh);
        v("bias_ih" + suffix, weights.bias_ih), v("bias_hh" + suffix, weights.bias_hh);
        v("weight_hr" + suffix, weights.hr);
    }
}

Weights& Stack::weights(std::int64_t layer, bool reverse) {
    if (layer < 0 || layer >= options_.num_layers || (reverse && !options_.bidirectional))
        throw IndexError(str(who_, ": no weights of layer ", layer, reverse ? ", reversed" : "",
                             ": the stack has ", options_.num_layers,
                             options_.num_layers == 1 ? " layer" : " layers", " with ",
                             directions(), options_.bidirectional ? " directions" : " direction"));
    return weights_[static_cast<std::size_t>(layer * directions() + (reverse ? 1 : 0))];
}

// Returns the given initial state as [layers * directions, batch, width], or zeros if it is
// undefined. Throws ShapeError if it has another shape.
Tensor Stack::state(const Tensor& given, const char* name, std::int64_t batch, std::int64_t width,
                    bool unbatched, const Tensor& x) const {
    const std::int64_t count = options_.num_layers * directions();
    if (!given.defined()) return zeros({count, batch, width}, {x.dtype(), x.device()});
    const Shape expected = unbatched ? Shape{count, width} : Shape{count, batch, width};
    if (given.shape() != expected)
        throw ShapeError(str(who_, ": ", name, " must be ", expected, ": it is ", given.shape()));
    return unbatched ? given.unsqueeze(1) : given;
}

State Stack::initial_state(const State& given, std::int64_t batch, bool unbatched,
                           const Tensor& x) const {
    State result;
    result.h = state(given.h, "h0", batch, output_width(), unbatched, x);
    if (cell_ == Cell::lstm) result.c = state(given.c, "c0", batch, hidden_, unbatched, x);
    return result;
}

std::pair<Tensor, State> Stack::run(Tensor x, const std::vector<std::int64_t>& sizes,
                                    const State& initial, bool training) const {
    std::vector<Tensor> h, c;
    for (std::int64_t layer = 0; layer < options_.num_layers; ++layer) {
        if (layer > 0) x = dropout(x, options_.dropout, training);
        std::vector<Tensor> outputs;
        for (std::int64_t direction = 0; direction < directions(); ++direction) {
            const std::int64_t i = layer * directions() + direction;
            const State start{initial.h[i], initial.c.defined() ? initial.c[i] : Tensor()};
            auto [y, last] = recurrent::run(cell_, x, sizes, weights_[static_cast<std::size_t>(i)],
                                            start, direction == 1);
            outputs.push_back(y);
            h.push_back(last.h);
            if (last.c.defined()) c.push_back(last.c);
        }
        x = outputs.size() == 1 ? outputs[0] : cat(outputs, 1);
    }
    return {x, {stack(h), c.empty() ? Tensor() : stack(c)}};
}

std::pair<Tensor, State> Stack::forward(const Tensor& x, const State& initial,
                                        bool training) const {
    const bool unbatched = x.defined() && x.dim() == 2;
    if (!x.defined() || (x.dim() != 3 && !unbatched) || x.size(-1) != in_) {
        const char* const sizes = options_.batch_first ? "[batch, time, " : "[time, batch, ";
        throw ShapeError(str(who_, ": x must be ", sizes, in_, "] or [time, ", in_, "]: x is ",
                             x.defined() ? str(x.shape()) : "undefined"));
    }
    const bool turns = options_.batch_first && !unbatched;
    const Tensor by_time = unbatched ? x.unsqueeze(1) : turns ? x.transpose(0, 1) : x;
    const std::int64_t time = by_time.size(0), batch = by_time.size(1);
    if (time == 0) throw ShapeError(str(who_, ": x must have at least one time step: ", x.shape()));
    auto [rows, last] =
        run(by_time.reshape({time * batch, in_}), std::vector<std::int64_t>(time, batch),
            initial_state(initial, batch, unbatched, x), training);
    Tensor y = rows.reshape({time, batch, rows.size(1)});
    if (turns) y = y.transpose(0, 1);
    if (!unbatched) return {y, last};
    return {y.squeeze(1), {last.h.squeeze(1), last.c.defined() ? last.c.squeeze(1) : Tensor()}};
}

std::pair<PackedSequence, State> Stack::forward(const PackedSequence& x, const State& initial,
                                                bool training) const {
    check_packed(who_, x);
    if (x.data.dim() != 2 || x.data.size(1) != in_)
        throw ShapeError(str(who_, ": the data of the packed sequence must be [rows, ", in_,
                             "]: it is ", x.data.shape()));
    const auto ordered = [](const State& state, const Tensor& order) {
        const auto select = [&](const Tensor& t) {
            return t.defined() && order.defined() ? t.index_select(1, order) : t;
        };
        return State{select(state.h), select(state.c)};
    };
    const State start = initial_state(initial, x.batch(), false, x.data);
    auto [rows, last] = run(x.data, x.batch_sizes, ordered(start, x.sorted_indices), training);
    PackedSequence y = x;
    y.data = rows;
    return {y, ordered(last, x.unsorted_indices)};
}

}  // namespace axle::nn::recurrent
