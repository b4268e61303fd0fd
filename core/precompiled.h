// Private to core: headers that nearly every source of the layers core to accel includes, compiled
// once if AXLE_PRECOMPILE is ON. Sources include what they use all the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "kernels/error.h"
