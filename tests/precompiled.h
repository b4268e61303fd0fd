// Headers that many tests include, compiled once if AXLE_PRECOMPILE is ON or TESTS.
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

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accel/accelerator.h"
#include "core/ops.h"
