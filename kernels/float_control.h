// The floating-point settings of a thread: rounding mode, denormal numbers, and traps.
#pragma once

#include <cstdint>

namespace axle::kernels {

// float_control() returns this thread's floating-point control bits (MXCSR on x86, FPCR on ARM),
// and set_float_control() sets them. On other processors the value is 0 and setting it has no
// effect. Sticky exception flags are not included and are not changed.
std::uint64_t float_control();
void set_float_control(std::uint64_t control);

// Disables floating-point traps in this thread for the lifetime of the object. Kernels need this
// because infinities and NaNs are valid results and unused vector lanes can hold arbitrary values.
// The rounding mode and the treatment of denormal numbers are not changed.
class NoTraps {
  public:
    NoTraps();
    ~NoTraps();
    NoTraps(const NoTraps&) = delete;
    NoTraps& operator=(const NoTraps&) = delete;

  private:
    std::uint64_t before_;
};

}  // namespace axle::kernels
