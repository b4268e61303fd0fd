#include "nn/models/generate.h"

#include <algorithm>
#include <cmath>

#include "core/autograd/autograd.h"
#include "nn/evaluation_scope.h"

namespace axle::nn {
namespace {

// Returns one token id for logits [1, vocabulary]: the most likely token if the temperature is 0,
// otherwise a sampled token.
std::int64_t next_token(Tensor logits, const GenerateOptions& options) {
    if (options.temperature == 0) return argmax(logits, -1).item_int();
    logits = logits / options.temperature;
    if (options.top_k > 0 && options.top_k < logits.size(-1)) {
        const Tensor least = topk(logits, options.top_k).first.slice(-1, -1);
        logits = masked_fill(logits, lt(logits, least), -INFINITY);
    }
    return multinomial(softmax(logits), 1).item_int();
}

}  // namespace

std::vector<std::int64_t> generate(Module& model,
                                   const std::function<Tensor(const Tensor& ids)>& logits,
                                   std::int64_t longest, std::vector<std::int64_t> ids,
                                   std::int64_t count, GenerateOptions options) {
    if (ids.empty())
        throw ValueError("generate: the sequence must contain at least one token: ids is empty");
    if (!(options.temperature >= 0))
        throw ValueError(str("generate: temperature must be at least 0: ", options.temperature));
    if (count < 0 || options.top_k < 0)
        throw ValueError(str("generate: count and top_k must not be negative: count ", count,
                             ", top_k ", options.top_k));
    const NoGrad no_grad;
    const EvaluationScope evaluating("generate", model);
    const std::vector<Tensor> parameters = model.parameters();
    // The parameters of other stages of a pipeline are on the meta device.
    const auto own = std::ranges::find_if(
        parameters, [](const Tensor& parameter) { return !parameter.device().is_meta(); });
    const Device device = own == parameters.end() ? Device::cpu() : own->device();
    for (std::int64_t i = 0; i < count; ++i) {
        const auto context = std::min(static_cast<std::int64_t>(ids.size()), longest);
        const std::vector<std::int64_t> window(ids.end() - context, ids.end());
        const Tensor y = logits(tensor(window, {1, context}).to(device));
        ids.push_back(next_token(y.select(1, -1).to(f32), options));
    }
    return ids;
}

}  // namespace axle::nn
