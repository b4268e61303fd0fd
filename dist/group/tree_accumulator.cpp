#include "dist/group/tree_accumulator.h"

#include <utility>

#include "core/autograd/autograd.h"
#include "core/ops.h"

namespace axle::dist {

void TreeAccumulator::push(Tensor term) {
    const NoGrad no_grad;
    std::size_t level = 0;
    for (; (count_ >> level) & 1; ++level) {
        Tensor earlier = std::exchange(sums_[level], {});
        term = earlier.add_(term);
    }
    if (level == sums_.size()) sums_.emplace_back();
    sums_[level] = std::move(term);
    ++count_;
}

Tensor TreeAccumulator::total() const {
    const NoGrad no_grad;
    Tensor sum;
    for (const Tensor& part : sums_) {
        if (!part.defined()) continue;
        if (!sum.defined())
            sum = clone(part);
        else
            sum = add(part, sum);
    }
    return sum;
}

void TreeAccumulator::clear() {
    sums_.clear();
    count_ = 0;
}

}  // namespace axle::dist
