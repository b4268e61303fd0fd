// Private to dist: computes sums whose bits do not depend on the number of processes.
//
// Additions form a binary tree. If a process sums each aligned range of 2^k terms and pushes the
// sums as terms, the tree is the same as if each term were pushed. The result therefore has the
// same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace axle::dist {

// A sum of terms m0, m1 and so on in the order of a binary tree, ((m0 + m1) + (m2 + m3)) + m4.
class TreeAccumulator {
  public:
    // Adds the next term. The caller must not use the tensor after the call, because later calls
    // overwrite its memory.
    void push(Tensor term);
    // Returns the sum of all terms in new memory, or an undefined tensor without terms.
    Tensor total() const;
    std::int64_t count() const { return count_; }
    void clear();

  private:
    std::vector<Tensor> sums_;  // one sum of 2^i terms for each bit i that is set in count_
    std::int64_t count_ = 0;
};

}  // namespace axle::dist
