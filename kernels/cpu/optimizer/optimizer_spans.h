// Private to kernels/cpu/optimizer/optimizer.cpp: operands of its inner loops, as contiguous lanes.
#pragma once

#include <cstdint>

namespace axle::kernels {

template <class Lane>
struct SgdSpan {
    Lane* p;
    const Lane* g;
    Lane* b;  // null for a plain step
    std::int64_t n;
};

template <class Lane>
struct AdamSpan {
    Lane* p;
    const Lane* g;
    Lane* m;
    Lane* v;
    Lane* largest;  // null without AMSGrad
    std::int64_t n;
};

}  // namespace axle::kernels
