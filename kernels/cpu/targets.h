// The instruction sets that kernels are compiled for, and their selection at run time.
//
// A kernel file that uses SIMD has this layout:
//
//     #include "kernels/....h"                                   // its public header
//     #undef HWY_TARGET_INCLUDE
//     #define HWY_TARGET_INCLUDE "kernels/cpu/attention/softmax.cpp"       // this file
//     #include "kernels/cpu/targets.h"
//     #include <hwy/foreach_target.h>                            // includes this file per target
//     #include "kernels/cpu/simd-inl.h"
//
//     HWY_BEFORE_NAMESPACE();
//     namespace axle::kernels::HWY_NAMESPACE {
//     void softmax_row(const float* x, float* y, std::int64_t n) { ... }
//     }  // namespace axle::kernels::HWY_NAMESPACE
//     HWY_AFTER_NAMESPACE();
//
//     #if HWY_ONCE
//     namespace axle::kernels {
//     AXLE_DISPATCH(softmax_row);                                // table of all versions
//     ... AXLE_CALL(softmax_row)(x, y, n) ...                    // calls the version for this CPU
//     }
//     #endif
//
// Axle uses only Highway's headers; AXLE_DISPATCH replaces the code in Highway's library.
#pragma once

// Disables targets, so that x86 CPUs without AVX2 use the baseline, and AVX-512 has one target
// (HWY_AVX3).
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#define HWY_IS_DEBUG_BUILD 0
// CPUs other than x86 have one target, which the compiler options select: on ARM64, NEON, or SVE
// with vectors of a fixed size (-msve-vector-bits).
#if !defined(__x86_64__) && !defined(__i386__) && !defined(HWY_COMPILE_ONLY_STATIC)
#define HWY_COMPILE_ONLY_STATIC
#endif
#include <hwy/detect_targets.h>
#if HWY_STATIC_TARGET == HWY_SVE || HWY_STATIC_TARGET == HWY_SVE2
#error "SVE kernels need -msve-vector-bits=256, or -msve-vector-bits=128 with SVE2"
#endif
#if defined(AXLE_NATIVE_TARGET) && HWY_STATIC_TARGET != AXLE_NATIVE_TARGET
#error "AXLE_NATIVE: the compiler options do not select the best instruction set of this machine"
#endif

namespace axle::kernels {

// Returns the index into dispatch tables: 0 for the baseline, 1 for AVX2 (with FMA, F16C and BMI2),
// 2 for AVX-512 (F, BW, CD, DQ, VL). The environment variable
// AXLE_CPU_TARGET=baseline|avx2|avx512|avx512_bf16|avx512_amx can select a lower target than the
// CPU supports. Names of higher targets and other values are ignored. If the kernels are compiled
// for one target only (AXLE_NATIVE=ON, or not for x86), all versions in the tables are the same.
int cpu_target();
// Returns whether the selected target includes AVX512_BF16 (bf16 products with f32 sums).
bool multiplies_bf16();
// Returns whether the selected target includes the bf16 tiles of AMX. The first call of a function
// that depends on the target asks Linux for the permission to use AMX, unless a lower target is
// selected. From then on, signal stacks (sigaltstack) need at least
// sysconf(_SC_MINSIGSTKSZ) bytes, which is about 11 KiB.
bool has_amx();
// Returns whether AXLE_CPU_TARGET=avx512_bf16 is set and the CPU supports it.
bool is_bf16_target_requested();
// Returns the name of the target: "baseline", "avx2", "avx512", "avx512_bf16" or "avx512_amx".
const char* cpu_target_name();
// Returns the only target for which the kernels are compiled (AXLE_NATIVE=ON, or not for x86):
// "baseline", "avx2" or "avx512", which includes avx512_bf16 and avx512_amx. Returns nullptr if
// they are compiled for all targets.
const char* only_target_name();

}  // namespace axle::kernels

// Defines the table of all versions of NAME, which must be a non-overloaded, non-template function
// in axle::kernels::HWY_NAMESPACE. AXLE_CALL(NAME)(arguments) calls the version for this CPU.
#if (HWY_TARGETS & HWY_AVX2) && (HWY_TARGETS & HWY_AVX3)
#define AXLE_DISPATCH(NAME)                                                  \
    static constexpr decltype(&HWY_STATIC_DISPATCH(NAME)) NAME##_table[] = { \
        &HWY_STATIC_DISPATCH(NAME), &N_AVX2::NAME, &N_AVX3::NAME}
#else
#define AXLE_DISPATCH(NAME)                                                  \
    static constexpr decltype(&HWY_STATIC_DISPATCH(NAME)) NAME##_table[] = { \
        &HWY_STATIC_DISPATCH(NAME), &HWY_STATIC_DISPATCH(NAME), &HWY_STATIC_DISPATCH(NAME)}
#endif
#define AXLE_CALL(NAME) NAME##_table[cpu_target()]
