#include "optim/algorithms/lookahead.h"

#include "core/autograd/local_part.h"
#include "core/cuda/graph.h"
#include "core/ops.h"

namespace axle::optim {

void LookaheadOptions::check() const {
    if (k < 1) throw ValueError(str("Lookahead: k must be 1 or more: ", k));
    if (!(alpha >= 0 && alpha <= 1))
        throw ValueError(str("Lookahead: alpha must be in [0, 1]: ", alpha));
}

void SlowWeights::add_named(std::vector<NamedOption>& options) {
    options.emplace_back("lookahead_k", &options_.k);
    options.emplace_back("lookahead_alpha", &options_.alpha);
    options.emplace_back("counter", &counter_);
}

void SlowWeights::check_not_capturing() {
    if (is_capturing())
        throw UsageError("Lookahead: steps cannot be captured in a graph; use AdamW");
}

bool SlowWeights::count_step() {
    if (++counter_ < options_.k) return false;
    counter_ = 0;
    return true;
}

void SlowWeights::update(const Tensor& param, Tensor slow) const {
    Tensor values = autograd::local_part(param).detach();
    slow.copy_(lerp(slow, values.to(slow.dtype()), options_.alpha));
    values.copy_(slow);
}

}  // namespace axle::optim
