// Private to kernels/cpu/optimizer/optimizer.cpp: the operands of its inner loops, as contiguous
// lanes.
#pragma once

#include <cstdint>

namespace axle::kernels {

template <class Lane>
struct UpdateSpan {
    Lane* p;
    const Lane* g;
    Lane* state[3];  // null if the optimizer has no such array
    std::int64_t n;
};

}  // namespace axle::kernels
