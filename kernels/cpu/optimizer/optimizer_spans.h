// Private to kernels/cpu/optimizer/optimizer.cpp: the operands of its inner loops, as contiguous
// lanes.
#pragma once

#include <cstdint>

namespace axle::kernels {

template <class Lane>
struct SgdSpan {
    Lane* p;
    const Lane* g;
    Lane* b;  // null for SGD without momentum
    std::int64_t n;
};

template <class Lane>
struct AdamSpan {
    Lane* p;
    const Lane* g;
    Lane* m;
    Lane* v;
    Lane* largest;  // null unless AMSGrad is used
    std::int64_t n;
};

}  // namespace axle::kernels
