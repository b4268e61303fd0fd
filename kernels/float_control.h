// How a thread computes with floating-point numbers: rounding, denormal numbers, traps.
#pragma once

#include <cstdint>

namespace axle::inline v0::kernels {

// This thread's control bits: of MXCSR on x86, FPCR on ARM; elsewhere 0, and setting does nothing.
// The flags of exceptions that have occurred are not among them, and stay.
std::uint64_t float_control();
void set_float_control(std::uint64_t control);

// While it lives, no floating-point exception of this thread traps: here infinities and NaNs are
// results, and idle lanes of a vector compute what they like. Rounding and the treatment of
// denormal numbers stay the caller's.
class NoTraps {
  public:
    NoTraps();
    ~NoTraps();
    NoTraps(const NoTraps&) = delete;
    NoTraps& operator=(const NoTraps&) = delete;

  private:
    std::uint64_t before_;
};

}  // namespace axle::inline v0::kernels
