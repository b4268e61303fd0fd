// Random numbers for a part of a larger tensor, whose other parts are on other processes.
#pragma once

#include <cstdint>

namespace axle {

// Part `part` of `parts` equal parts of a tensor along a dimension.
struct RandomPart {
    int dim = 0;
    std::int64_t part = 0, parts = 1;
};

// While a guard exists, dropout() and scaled_dot_product_attention() on this thread treat their
// operand as a part of a larger tensor. Each element gets the random number that it would get in an
// op on the larger tensor. The generator advances by the numbers of the larger tensor. Attention
// with dropout supports only parts along the heads (dimension 1), and throws UsageError for other
// parts. A guard with parts = 1 has no effect.
class RandomPartGuard {
  public:
    [[nodiscard]] explicit RandomPartGuard(const RandomPart& part);
    ~RandomPartGuard();
    RandomPartGuard(const RandomPartGuard&) = delete;
    RandomPartGuard& operator=(const RandomPartGuard&) = delete;

    // Returns the part of the innermost guard of this thread with parts > 1, by default {0, 0, 1}.
    static const RandomPart& current();

  private:
    RandomPart before_;
};

}  // namespace axle
