// The formulas, compiled for the Pack of the current target, in
// axle::kernels::HWY_NAMESPACE::formula. This file is included once per target, like
// kernels/cpu/simd-inl.h.
#if defined(AXLE_KERNELS_CPU_FORMULAS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef AXLE_KERNELS_CPU_FORMULAS_INL_H_
#undef AXLE_KERNELS_CPU_FORMULAS_INL_H_
#else
#define AXLE_KERNELS_CPU_FORMULAS_INL_H_
#endif

#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/activation.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {
namespace formula {
// These files must be included in this order.
// clang-format off
#include "kernels/ops/unary_formulas.inl"
#include "kernels/ops/rounding_formulas.inl"
#include "kernels/ops/nonlinearity_formulas.inl"
#include "kernels/ops/binary_formulas.inl"
#include "kernels/ops/activation_formulas.inl"
// clang-format on
}  // namespace formula

// Returns a formula whose parameters are passed as bytes. They are the bytes of the same formula in
// kernels/ops/pointwise.h, which has the same layout.
template <class F>
HWY_INLINE F formula_from(const void* bytes) {
    static_assert(std::is_trivially_copyable_v<F>);
    F f;
    std::memcpy(&f, bytes, sizeof f);
    return f;
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
