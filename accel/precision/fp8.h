// Training in fp8: Linear layers multiply in 8-bit floats (nn/precision/float8.h), the rest as in
// bf16.
//
//     axle::Accelerator accelerator({.mixed_precision = "fp8",
//                                    .ao_recipe_kwargs = accel::AORecipeKwargs()});
//
// prepare() gives every Linear whose sizes are multiples of 16 a policy; others stay as they are.
// It needs a GPU of compute capability 8.9; before, "fp8" becomes "fp16", and on the CPU "bf16",
// with a warning, unless the recipe emulates it.
//
// What a field doesn't say is asked of the environment, ACCELERATE_FP8_<FIELD>; which recipe, of
// ACCELERATE_FP8_BACKEND (AO or TE), else it is AO.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace axle::nn {
class Linear;
}

namespace axle::accel {

enum class Fp8Backend : std::uint8_t {
    NO,
    AO,  // scales of the values themselves, as torchao
    TE,  // scales of values before, as Transformer Engine
};

// Current scaling: each product's operands are brought into range by what is largest in them, f8
// e4m3 forward and e5m2 for gradients. In evaluation too.
struct AORecipeKwargs {
    // Which layers, by name; without, all but the first and the last.
    std::function<bool(const nn::Linear&, const std::string& name)> module_filter_func = {};
    // Products over numbers of rows that are not multiples of 16 are filled up with zeros (true
    // unless said), or else not done in 8 bits.
    std::optional<bool> pad_inner_dim = {};
    std::optional<bool> enable_fsdp_float8_all_gather = {};  // nothing is sharded: no effect
    bool round_scales_to_power_of_2 = false;
    bool emulate = false;  // on any device: rounded to 8 bits, multiplied in f32
};

// Delayed scaling. The history is a buffer of the layer, saved with the model.
struct TERecipeKwargs {
    std::optional<bool> use_autocast_during_eval = {};  // false
    std::optional<int> margin = {};                     // 0: powers of two that are left free
    std::optional<int> interval = {};                   // 1: steps between new scales
    // "HYBRID" (e4m3 forward, e5m2 for gradients), "E4M3" or "E5M2" for all
    std::string fp8_format = {};
    std::optional<int> amax_history_len = {};                           // 1024
    std::string amax_compute_algo = {};                                 // "most_recent" or "max"
    std::optional<std::array<bool, 3>> override_linear_precision = {};  // fprop, dgrad, wgrad
    std::optional<bool> use_mxfp8_block_scaling = {};                   // true is refused
    bool emulate = false;                                               // as AORecipeKwargs'
};

}  // namespace axle::accel
