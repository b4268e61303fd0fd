#include "nn/layers/mixture.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/autograd/autograd.h"
#include "nn/init.h"

namespace axle::nn {
namespace {

const MixtureOptions& checked(std::int64_t width, std::int64_t hidden,
                              const MixtureOptions& options) {
    const auto& [experts, top_k, factor, normalizes, activation] = options;
    if (width < 1 || hidden < 1 || experts < 1 || top_k < 1)
        throw ValueError(str("MixtureOfExperts: sizes must be positive: width ", width, ", hidden ",
                             hidden, ", experts ", experts, ", top_k ", top_k));
    if (top_k > experts)
        throw ValueError(
            str("MixtureOfExperts: top_k must be at most the number of experts: top_k ", top_k,
                ", experts ", experts));
    if (factor && !(*factor > 0 && std::isfinite(*factor)))
        throw ValueError(
            str("MixtureOfExperts: capacity_factor must be positive and finite: ", *factor));
    return options;
}

Tensor matrices(std::int64_t experts, std::int64_t out, std::int64_t in) {
    Tensor weights = init::parameter({experts, out, in});
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    init::uniform_(weights, -bound, bound);
    return weights;
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(std::int64_t width, std::int64_t hidden, MixtureOptions options)
    : router(width, checked(width, hidden, options).experts, {.bias = false}),
      experts{matrices(options.experts, hidden, width), matrices(options.experts, hidden, width),
              matrices(options.experts, width, hidden)},
      options_(options) {}

void MixtureOfExperts::visit(Visitor& v) {
    v("router", router);
    v("experts.gate", experts.gate), v("experts.up", experts.up), v("experts.down", experts.down);
    v.ignore(auxiliary_);
}

Tensor MixtureOfExperts::auxiliary_loss() const {
    if (!auxiliary_.defined())
        throw UsageError("MixtureOfExperts: auxiliary_loss() needs a call of forward() before it");
    return auxiliary_;
}

Mixture mix_experts(const Tensor& input, const Tensor& logits, const MixtureOptions& options,
                    const std::function<Tensor(const Tensor& rows,
                                               const std::vector<std::int64_t>& counts)>& compute) {
    const std::int64_t width = input.size(-1), number = options.experts;
    Mixture result;
    const Tensor x = input.reshape({-1, width});
    const std::int64_t tokens = x.size(0), top_k = options.top_k;
    const Tensor probabilities = softmax(logits.to(logits.dtype() == f64 ? f64 : f32));
    const auto [values, ids] = topk(probabilities, top_k);
    const Tensor gates = options.normalizes ? values / sum(values, {-1}, true) : values;

    // Choice c * tokens + t is choice c of token t. `order` has the choices ordered by expert.
    Tensor order, chosen;
    {
        const NoGrad no_grad;
        const Tensor flat = ids.t().reshape({-1});
        chosen = sum(one_hot(flat, number), {0});
        order = argsort(flat);
    }
    const Tensor share = chosen.to(probabilities.dtype()) /
                         static_cast<double>(std::max<std::int64_t>(1, tokens * top_k));
    result.auxiliary_loss = sum(share * mean(probabilities, {0})) * static_cast<double>(number);

    const std::vector<double> choices = chosen.to_vector();
    std::int64_t capacity = tokens * top_k;
    if (options.capacity_factor)
        capacity = static_cast<std::int64_t>(
            std::ceil(*options.capacity_factor * static_cast<double>(capacity) /
                      static_cast<double>(number)));
    std::vector<Tensor> kept;
    std::int64_t begin = 0;
    for (const double count : choices) {
        const auto all = static_cast<std::int64_t>(count);
        result.counts.push_back(std::min(all, capacity));
        kept.push_back(order.narrow(0, begin, result.counts.back()));
        begin += all;
    }
    const Tensor choice = cat(kept, 0);
    result.dropped = begin - choice.size(0);
    const Tensor numbers = arange(tokens, {.dtype = i64, .device = x.device()});
    const Tensor token_of = expand(numbers.unsqueeze(0), {top_k, tokens}).reshape({-1});
    const Tensor token = index_select(token_of, 0, choice);

    const Tensor rows = index_select(x, 0, token);
    const Tensor outputs = compute(rows, result.counts);
    const Tensor weights = index_select(gates.t().reshape({-1}), 0, choice).unsqueeze(-1);
    const Tensor weighted = (outputs.to(weights.dtype()) * weights).to(outputs.dtype());
    const Tensor none = zeros({tokens, width}, {.dtype = weighted.dtype(), .device = x.device()});
    result.output = scatter_add(none, 0, expand(token.unsqueeze(-1), weighted.shape()), weighted)
                        .reshape(input.shape());
    return result;
}

Tensor MixtureOfExperts::forward(const Tensor& x) {
    // A quantized router has no weight, and checks the width itself.
    const std::int64_t width = router.weight.defined() ? router.weight.size(1) : x.size(-1);
    if (x.dim() == 0 || x.size(-1) != width)
        throw ShapeError(str("MixtureOfExperts: x must be [..., ", width, "]: x is ", x.shape()));
    Mixture mixture = mix_experts(
        x, router(x.reshape({-1, width})), options_,
        [this](const Tensor& rows, const std::vector<std::int64_t>& counts) {
            return policy ? policy->compute(*this, rows, counts) : compute(experts, rows, counts);
        });
    auxiliary_ = mixture.auxiliary_loss;
    counts_ = std::move(mixture.counts), dropped_ = mixture.dropped;
    return mixture.output;
}

Tensor MixtureOfExperts::compute(const ExpertWeights& weights, const Tensor& rows,
                                 const std::vector<std::int64_t>& counts) const {
    // Includes experts without rows, so that all processes use the same parameters.
    std::vector<Tensor> outputs;
    std::int64_t begin = 0;
    for (std::size_t e = 0; e < counts.size(); ++e) {
        const auto expert = static_cast<std::int64_t>(e);
        const Tensor x = rows.narrow(0, begin, counts[e]);
        const Tensor gate = linear(x, weights.gate.select(0, expert), {}, options_.activation);
        const Tensor up = linear(x, weights.up.select(0, expert));
        outputs.push_back(linear(gate * up, weights.down.select(0, expert)));
        begin += counts[e];
    }
    return cat(outputs, 0);
}

}  // namespace axle::nn
