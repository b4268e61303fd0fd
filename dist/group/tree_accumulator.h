// Private to dist: sums whose bits do not depend on how the terms are divided over processes.
//
// Any aligned run of 2^k consecutive terms may have been summed before, by other processes or by
// this one. All additions form the same binary tree, so the result has the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace axle::dist {

// A binary counter of partial sums: ((m0 + m1) + (m2 + m3)) + ...
class TreeAccumulator {
  public:
    // Adds the next term. Takes ownership of the tensor's memory.
    void push(Tensor term);
    // Returns the sum of the terms so far in new memory, or an undefined tensor if there are none.
    Tensor total() const;
    std::int64_t count() const { return count_; }
    void clear();

  private:
    std::vector<Tensor> sums_;  // sums of 2^i terms, for each bit i set in count_
    std::int64_t count_ = 0;
};

}  // namespace axle::dist
