#include "tests/simulator/simulator.h"

namespace axle::inline v0::kernels::simulator {

bool plugged_in() { return true; }

}  // namespace axle::inline v0::kernels::simulator
