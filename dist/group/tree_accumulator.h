// Private to dist: sums that don't depend on who computes which part.
//
// Of 2^n terms, any power of two of neighbours may have been added before: by several processes, or
// by this one. The additions form the same binary tree, so the sum has the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace axle::inline v0::dist {

// A binary counter of partial sums: ((m0 + m1) + (m2 + m3)) + ...
class TreeAccumulator {
  public:
    // The next term; the tensor becomes the accumulator's.
    void push(Tensor term);
    // Of what has been pushed so far, in memory of its own. Undefined if that is nothing.
    Tensor total() const;
    std::int64_t count() const { return count_; }
    void clear();

  private:
    std::vector<Tensor> sums_;  // of 2^i terms where bit i of the count is set
    std::int64_t count_ = 0;
};

}  // namespace axle::inline v0::dist
