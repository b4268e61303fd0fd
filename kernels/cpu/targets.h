// Which instruction sets the kernels are compiled for, and which of them this CPU gets.
//
// A kernel file that uses SIMD is laid out as
//
//     #include "kernels/....h"                                   // its public header
//     #undef HWY_TARGET_INCLUDE
//     #define HWY_TARGET_INCLUDE "kernels/cpu/attention/softmax.cpp"       // itself
//     #include "kernels/cpu/targets.h"
//     #include <hwy/foreach_target.h>                            // includes this file per target
//     #include "kernels/cpu/simd-inl.h"
//
//     HWY_BEFORE_NAMESPACE();
//     namespace axle::inline v0::kernels::HWY_NAMESPACE {
//     void softmax_row(const float* x, float* y, std::int64_t n) { ... }
//     }  // namespace axle::inline v0::kernels::HWY_NAMESPACE
//     HWY_AFTER_NAMESPACE();
//
//     #if HWY_ONCE
//     namespace axle::inline v0::kernels {
//     AXLE_DISPATCH(softmax_row);                                // its versions
//     ... AXLE_CALL(softmax_row)(x, y, n) ...                    // this CPU's
//     }
//     #endif
//
// Only Highway's headers are used; the table below replaces its library.
#pragma once

// The baseline is portable code; x86 CPUs without AVX2 use it.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#define HWY_IS_DEBUG_BUILD 0
#include <hwy/detect_targets.h>

namespace axle::inline v0::kernels {

// Index into a dispatch table: 0 baseline, 1 AVX2 (with FMA, F16C), 2 AVX-512 (F, BW, CD, DQ, VL).
// AXLE_CPU_TARGET=baseline|avx2|avx512|avx512_bf16 lowers it (it never raises it beyond what the
// CPU has).
int cpu_target();
// Whether there is, on top of index 2, AVX512_BF16: products of bf16 with sums in f32.
bool multiplies_bf16();
// "baseline", "avx2", "avx512", "avx512_bf16"
const char* cpu_target_name();

}  // namespace axle::inline v0::kernels

// NAME: a non-overloaded, non-template function of axle::kernels::HWY_NAMESPACE. Defines, where it
// is written, the table of its versions; AXLE_CALL(NAME)(arguments) calls this CPU's.
#if HWY_TARGETS & HWY_AVX3
#define AXLE_DISPATCH(NAME)                                                  \
    static constexpr decltype(&HWY_STATIC_DISPATCH(NAME)) NAME##_table[] = { \
        &HWY_STATIC_DISPATCH(NAME), &N_AVX2::NAME, &N_AVX3::NAME}
#else
#define AXLE_DISPATCH(NAME)                                                  \
    static constexpr decltype(&HWY_STATIC_DISPATCH(NAME)) NAME##_table[] = { \
        &HWY_STATIC_DISPATCH(NAME), &HWY_STATIC_DISPATCH(NAME), &HWY_STATIC_DISPATCH(NAME)}
#endif
#define AXLE_CALL(NAME) NAME##_table[cpu_target()]
