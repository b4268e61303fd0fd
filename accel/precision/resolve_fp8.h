// Private to accel: resolves the fp8 recipe of the options and the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "accel/config/options.h"
#include "nn/precision/float8.h"

namespace axle::accel {

struct Fp8Plan {
    Fp8Backend backend = Fp8Backend::AO;
    nn::Float8Options options;
    // Selects the layers to convert. If empty, selects all Linear layers, except the first and the
    // last one if `skips_ends` is true.
    std::function<bool(const nn::Linear&, const std::string& name)> filter;
    bool skips_ends = false;
};

// Returns the plan for the recipe in the options and the environment. Throws ValueError for invalid
// options, and NotImplementedError for use_mxfp8_block_scaling.
Fp8Plan fp8_plan(const AcceleratorOptions& options);
// Returns the plan if `mixed_precision` is "fp8", else nullopt. If the device can't multiply in fp8
// and the recipe does not emulate fp8, sets `mixed_precision` to "fp16" (GPU) or "bf16" (CPU), logs
// a warning and returns nullopt. Throws ValueError if a recipe is set and `mixed_precision` is not
// "fp8". Also throws the errors of fp8_plan().
std::optional<Fp8Plan> start_fp8(const AcceleratorOptions& options, Device device,
                                 std::string& mixed_precision);
// Converts the model's Linear layers to fp8, except layers that the plan excludes or whose sizes
// fp8 does not support. Logs a warning if no layer was converted.
void convert_to_fp8(nn::Module& model, const Fp8Plan& plan);

}  // namespace axle::accel
