// Options for training in fp8: Linear layers multiply in 8-bit floats (nn/precision/float8.h), all
// other operations run as in bf16.
//
//     axle::Accelerator accelerator({.mixed_precision = "fp8",
//                                    .ao_recipe_kwargs = accel::AORecipeKwargs()});
//
// prepare() sets a policy for each Linear whose sizes are multiples of 16; others stay as they are.
// This needs a GPU of compute capability 8.9. On older GPUs "fp8" becomes "fp16" and on a CPU
// "bf16", with a warning, unless the recipe emulates fp8.
//
// Fields that are not set are read from the environment variables ACCELERATE_FP8_<FIELD>.
// ACCELERATE_FP8_BACKEND (AO or TE) selects the recipe; the default is AO.
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
    AO,  // current scaling, as torchao
    TE,  // delayed scaling, as Transformer Engine
};

// Current scaling: each operand of a product is scaled by its own largest absolute value. Values
// are f8 e4m3 in forward and e5m2 in backward. Applies in evaluation too.
struct AORecipeKwargs {
    // Returns whether a layer is converted; by default all but the first and the last layer are.
    std::function<bool(const nn::Linear&, const std::string& name)> module_filter_func = {};
    // true, the default: products over a number of rows that is not a multiple of 16 are padded
    // with zeros. false: such products are not computed in fp8.
    std::optional<bool> pad_inner_dim = {};
    std::optional<bool> enable_fsdp_float8_all_gather = {};  // has no effect: nothing is sharded
    bool round_scales_to_power_of_2 = false;
    bool emulate = false;  // on any device: rounds to 8 bits and multiplies in f32
};

// Delayed scaling: scales come from the largest absolute values of earlier steps. The history is a
// buffer of the layer and is saved with the model. Comments give the defaults.
struct TERecipeKwargs {
    std::optional<bool> use_autocast_during_eval = {};  // false
    std::optional<int> margin = {};                     // 0: the scale is reduced by 2^margin
    std::optional<int> interval = {};                   // 1: steps between updates of the scale
    // "HYBRID" (e4m3 forward, e5m2 for gradients), "E4M3" or "E5M2" for all
    std::string fp8_format = {};
    std::optional<int> amax_history_len = {};                           // 1024
    std::string amax_compute_algo = {};                                 // "most_recent" or "max"
    std::optional<std::array<bool, 3>> override_linear_precision = {};  // fprop, dgrad, wgrad
    std::optional<bool> use_mxfp8_block_scaling = {};  // false; true throws NotImplementedError
    bool emulate = false;                              // as in AORecipeKwargs
};

}  // namespace axle::accel
