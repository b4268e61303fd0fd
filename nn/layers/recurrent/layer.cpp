#include "nn/layers/recurrent/layer.h"

#include <algorithm>

#include "core/autograd/autograd.h"
#include "core/ops/recurrent/recurrent.h"

namespace axle::nn::recurrent {
namespace {

// Splits x into parts with these numbers of rows. The parts share one node, so that a single cat
// combines their gradients.
std::vector<Tensor> split_rows(const Tensor& x, const std::vector<std::int64_t>& sizes) {
    if (std::all_of(sizes.begin(), sizes.end(), [&](auto size) { return size == sizes[0]; }) &&
        sizes[0] > 0)
        return split(x, sizes[0]);
    std::vector<Tensor> parts;
    std::vector<Tensor*> outputs;
    {
        const NoGrad no_grad;
        std::int64_t start = 0;
        for (const std::int64_t size : sizes) {
            parts.push_back(narrow(x, 0, start, size));
            start += size;
        }
    }
    for (Tensor& part : parts) outputs.push_back(&part);
    record_outputs("split", outputs, {x},
                   [sizes, width = x.size(1)](const Grads& dy, Needs) -> Grads {
                       std::vector<Tensor> all = dy;
                       Tensor known;
                       for (const Tensor& gradient : dy)
                           if (gradient.defined()) known = gradient;
                       for (std::size_t i = 0; i < all.size(); ++i)
                           if (!all[i].defined())
                               all[i] = zeros({sizes[i], width}, {known.dtype(), known.device()});
                       return {cat(all)};
                   });
    return parts;
}

// Returns `count` sequences of a state, starting at `first`.
State part(const State& state, std::int64_t first, std::int64_t count) {
    const auto rows = [&](const Tensor& t) {
        return !t.defined() || t.size(0) == count ? t : t.narrow(0, first, count);
    };
    return {rows(state.h), rows(state.c)};
}

State joined(const std::vector<State>& states) {
    std::vector<Tensor> h, c;
    for (const State& state : states) {
        h.push_back(state.h);
        if (state.c.defined()) c.push_back(state.c);
    }
    return {cat(h), c.empty() ? Tensor() : cat(c)};
}

}  // namespace

State converted(const State& state, DType dtype) {
    return {to(state.h, dtype), state.c.defined() ? to(state.c, dtype) : state.c};
}

std::int64_t gates_of(Cell cell) {
    switch (cell) {
        case Cell::lstm:
            return 4;
        case Cell::gru:
            return 3;
        default:
            return 1;
    }
}

Tensor input_product(Cell cell, const Tensor& x, const Weights& weights) {
    Tensor bias = weights.bias_ih;
    if (bias.defined() && cell != Cell::gru) bias = bias + weights.bias_hh;
    return linear(x, weights.ih, bias);
}

State step(Cell cell, const Tensor& input, const Weights& weights, const State& state) {
    switch (cell) {
        case Cell::lstm: {
            const auto [h, c] = lstm_step(input, linear(state.h, weights.hh), state.c);
            return {weights.hr.defined() ? linear(h, weights.hr) : h, c};
        }
        case Cell::gru:
            return {gru_step(input, linear(state.h, weights.hh, weights.bias_hh), state.h), {}};
        case Cell::rnn_relu:
            return {relu(input + linear(state.h, weights.hh)), {}};
        default:
            return {tanh(input + linear(state.h, weights.hh)), {}};
    }
}

std::pair<Tensor, State> run(Cell cell, const Tensor& x, const std::vector<std::int64_t>& sizes,
                             const Weights& weights, const State& given, bool reverse) {
    const Tensor product = input_product(cell, x, weights);
    const std::vector<Tensor> inputs = split_rows(product, sizes);
    std::vector<Tensor> outputs(sizes.size());
    std::vector<State> finished;  // the states of sequences that ended, by ascending length
    const State initial = converted(given, product.dtype());
    State state = part(initial, 0, reverse ? sizes.back() : sizes.front());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        const std::size_t t = reverse ? sizes.size() - 1 - i : i;
        const std::int64_t before = state.h.size(0), now = sizes[t];
        if (now < before) {
            finished.push_back(part(state, now, before - now));
            state = part(state, 0, now);
        } else if (now > before) {
            state = joined({state, part(initial, before, now - before)});
        }
        state = step(cell, inputs[t], weights, state);
        outputs[t] = state.h;
    }
    if (!finished.empty()) {
        finished.push_back(state);
        std::reverse(finished.begin(), finished.end());
        state = joined(finished);
    }
    return {cat(outputs), state};
}

namespace {

// Describes the first increase, or the last size, which is not positive if there is no increase.
std::string first_fault(const std::vector<std::int64_t>& sizes) {
    for (std::size_t i = 1; i < sizes.size(); ++i)
        if (sizes[i] > sizes[i - 1])
            return str(sizes[i], " follows ", sizes[i - 1], " at index ", i);
    return str("the last is ", sizes.back());
}

}  // namespace

void check_packed(const char* who, const PackedSequence& sequence) {
    if (!sequence.data.defined()) throw UsageError(str(who, ": the packed sequence has no data"));
    const std::vector<std::int64_t>& sizes = sequence.batch_sizes;
    std::int64_t total = 0;
    for (const std::int64_t size : sizes) total += size;
    if (sizes.empty() || sizes.back() < 1 || !std::is_sorted(sizes.rbegin(), sizes.rend()))
        throw ValueError(str(who, ": batch_sizes must be positive and must not increase: ",
                             sizes.empty() ? "they are empty" : first_fault(sizes)));
    if (sequence.data.dim() < 1 || sequence.data.size(0) != total)
        throw ValueError(str(who, ": the sum of batch_sizes is ", total, ", but data is ",
                             sequence.data.shape()));
}

}  // namespace axle::nn::recurrent
