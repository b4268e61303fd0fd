// Private to core: the headers that nearly every source of the layers from core to accel includes.
// They are compiled once per optimization level if AXLE_PRECOMPILE is ON. Sources still include
// every header that they use.
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
