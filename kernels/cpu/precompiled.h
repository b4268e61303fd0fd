// Private to kernels: the headers that nearly every kernel for CPUs includes. They are compiled
// once if AXLE_PRECOMPILE is ON and the kernels are compiled for one instruction set
// (native_kernels()). Sources still include every header that they use.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#ifdef HWY_COMPILE_ONLY_STATIC
#include "kernels/cpu/targets.h"
// foreach_target.h includes nothing if the kernels are compiled for one instruction set.
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"
#endif
