// Private to accel: what the recipes of fp8 and the environment together say.
#pragma once

#include <functional>
#include <string>

#include "accel/config/options.h"
#include "nn/precision/float8.h"

namespace axle::inline v0::accel {

struct Fp8Plan {
    Fp8Backend backend = Fp8Backend::AO;
    nn::Float8Options options;
    // Null: all but the first and the last layer, where `skips_ends`.
    std::function<bool(const nn::Linear&, const std::string& name)> filter;
    bool skips_ends = false;
};

// ValueError for what no recipe may say.
Fp8Plan fp8_plan(const AcceleratorOptions& options);

}  // namespace axle::inline v0::accel
