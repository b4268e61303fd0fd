#include "kernels/float_control.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace axle::kernels {
namespace {

#if defined(__SSE__)
constexpr std::uint64_t kFlags = 0x3f;
constexpr std::uint64_t kMasks = 0x1f80;  // a set bit disables the trap of an exception

std::uint64_t read() { return _mm_getcsr(); }
void write(std::uint64_t word) { _mm_setcsr(static_cast<unsigned>(word)); }
std::uint64_t without_traps(std::uint64_t control) { return control | kMasks; }
#elif defined(__aarch64__)
constexpr std::uint64_t kFlags = 0;
constexpr std::uint64_t kTraps = 0x9f00;

std::uint64_t read() {
    std::uint64_t word = 0;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
}
void write(std::uint64_t word) { asm volatile("msr fpcr, %0" : : "r"(word)); }
std::uint64_t without_traps(std::uint64_t control) { return control & ~kTraps; }
#else
constexpr std::uint64_t kFlags = 0;

std::uint64_t read() { return 0; }
void write(std::uint64_t) {}
std::uint64_t without_traps(std::uint64_t control) { return control; }
#endif

}  // namespace

std::uint64_t float_control() { return read() & ~kFlags; }

void set_float_control(std::uint64_t control) { write(control | (read() & kFlags)); }

NoTraps::NoTraps() : before_(float_control()) {
    if (const std::uint64_t quiet = without_traps(before_); quiet != before_)
        set_float_control(quiet);
}

// Restores the control bits. Exception flags that kernels have raised stay set; enabling the traps
// again does not make these flags trap.
NoTraps::~NoTraps() {
    if (without_traps(before_) != before_) set_float_control(before_);
}

}  // namespace axle::kernels
