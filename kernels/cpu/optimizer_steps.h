// What kernels/cpu/optimizer.cpp works out per slot, and hands to its loops over contiguous lanes.
#pragma once

#include <cstdint>

namespace axle::inline v0::kernels {

enum class SgdKind : std::uint8_t { plain, momentum, nesterov };

struct SgdStep {
    double lr, grad, decay, momentum;
    double keep, add;  // b = keep b + add g
    SgdKind kind;
};

template <class Lane>
struct SgdSpan {
    Lane* p;
    const Lane* g;
    Lane* b;
    std::int64_t n;
};

// With root = sqrt(1 - beta2^t), sqrt(v / (1 - beta2^t)) + eps is (sqrt(v) + eps root) / root: the
// bias corrections cost no division per element.
struct AdamStep {
    double grad;   // factor of the gradient: inv_scale * clip, negative to maximize
    double decay;  // of the parameter, added to the gradient
    double keep;   // factor of the parameter: decoupled weight decay
    double beta2;
    double rest1, rest2;  // 1 - beta
    double size;          // lr root / (1 - beta1^t)
    double eps;           // times root
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

}  // namespace axle::inline v0::kernels
