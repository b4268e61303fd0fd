#include "tests/simulator/simulator.h"

namespace axle::kernels::simulator {

bool plugged_in() { return true; }

}  // namespace axle::kernels::simulator
