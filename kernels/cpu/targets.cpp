#include "kernels/cpu/targets.h"

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace axle::kernels {
namespace {

constexpr const char* kNames[] = {"baseline", "avx2", "avx512", "avx512_bf16", "avx512_amx"};
constexpr int kBf16 = 3, kAmx = 4;  // indices into kNames

#if defined(__x86_64__) || defined(__i386__)
// Returns whether the CPU converts f16 numbers. Clang 17 and older do not support
// __builtin_cpu_supports("f16c").
bool has_f16c() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// Returns whether the CPU has AMX with bf16. The operating system may forbid its use.
bool has_amx_instructions() {
#if defined(__x86_64__) && defined(__linux__)
    constexpr unsigned kBf16Bit = 1u << 22, kTileBit = 1u << 24;
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kBf16Bit) != 0 &&
           (d & kTileBit) != 0;
#else
    return false;
#endif
}
#endif

// Asks Linux for the permission to use AMX, for all threads of the process. Linux grants it since
// version 5.16. Returns whether it is granted.
bool request_amx() {
#if defined(__x86_64__) && defined(__linux__)
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
    return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}

// Returns the index into kNames of the best target for this CPU.
int best_target() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi2") || !has_f16c())
        return 0;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl"))
        return 1;
    if (!__builtin_cpu_supports("avx512bf16")) return 2;
    return has_amx_instructions() ? kAmx : kBf16;
#else
    return 0;
#endif
}

// Returns the best target, or a lower one that AXLE_CPU_TARGET names.
int wanted_target() {
    const int best = best_target();
    const char* wish = std::getenv("AXLE_CPU_TARGET");
    if (wish == nullptr) return best;
    for (int lower = 0; lower < best; ++lower)
        if (std::strcmp(wish, kNames[lower]) == 0) return lower;
    return best;
}

int target() {
    static const int chosen = [] {
        const int wanted = wanted_target();
        return wanted == kAmx && !request_amx() ? kBf16 : wanted;
    }();
    return chosen;
}

}  // namespace

int cpu_target() { return target() < 2 ? target() : 2; }

bool multiplies_bf16() { return target() >= kBf16; }
bool has_amx() { return target() == kAmx; }
bool is_bf16_target_requested() {
    const char* const wish = std::getenv("AXLE_CPU_TARGET");
    return multiplies_bf16() && wish != nullptr && std::strcmp(wish, kNames[kBf16]) == 0;
}

const char* cpu_target_name() { return kNames[target()]; }

const char* only_target_name() {
#ifndef HWY_COMPILE_ONLY_STATIC
    return nullptr;
#elif HWY_STATIC_TARGET == HWY_AVX3
    return kNames[2];
#elif HWY_STATIC_TARGET == HWY_AVX2
    return kNames[1];
#else
    return kNames[0];
#endif
}

}  // namespace axle::kernels
