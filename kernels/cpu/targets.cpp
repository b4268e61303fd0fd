#include "kernels/cpu/targets.h"

#include <cstdlib>
#include <cstring>

namespace axle::inline v0::kernels {
namespace {

int detect() {
    int best = 0;
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2"))
        best = 1;
    if (best == 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        best = 2;
#endif
    const char* wish = std::getenv("AXLE_CPU_TARGET");
    if (wish == nullptr) return best;
    for (int target = 0; target < best; ++target) {
        static constexpr const char* kNames[] = {"baseline", "avx2"};
        if (std::strcmp(wish, kNames[target]) == 0) return target;
    }
    return best;
}

}  // namespace

int cpu_target() {
    static const int target = detect();
    return target;
}

const char* cpu_target_name() {
    static constexpr const char* kNames[] = {"baseline", "avx2", "avx512"};
    return kNames[cpu_target()];
}

}  // namespace axle::inline v0::kernels
