// Options for training in fp8: Linear layers multiply in 8-bit floats (nn/precision/float8.h), and
// all other operations run in bf16 mixed precision.
//
//     axle::Accelerator accelerator({.mixed_precision = "fp8",
//                                    .ao_recipe_kwargs = accel::AORecipeKwargs()});
//
// prepare() sets a policy for each Linear that the recipe selects, if its sizes are multiples of 16
// and it has no policy yet. It does not change other Linears. fp8 needs a GPU of compute capability
// 8.9 or newer. Unless the recipe emulates fp8, older GPUs use "fp16" and a CPU uses "bf16"
// instead, with a warning.
//
// Optional fields and strings that are not set are read from the environment variables
// ACCELERATE_FP8_<FIELD>. Exceptions: fp8_format is read from ACCELERATE_FP8_FORMAT, and
// override_linear_precision from ACCELERATE_FP8_OVERRIDE_FPROP, _DGRAD and _WGRAD.
// ACCELERATE_FP8_BACKEND (AO, TE or NO) selects the recipe if the program sets none. Without the
// variable, and with NO, the recipe is AO.
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
    AO,  // current scaling, as in torchao
    TE,  // delayed scaling, as in Transformer Engine
};

// The recipe for current scaling: each operand of a product is scaled by its own largest absolute
// value. Inputs and weights are f8 e4m3, and gradients are f8 e5m2. Evaluation uses fp8 too.
struct AORecipeKwargs {
    // Returns whether the recipe selects a layer. By default, it selects all Linear layers except
    // the first and the last one.
    std::function<bool(const nn::Linear&, const std::string& name)> module_filter_func = {};
    // Whether rows of zeros are added to the operands of a weight gradient if the number of rows of
    // the input is not a multiple of 16. True by default. If false, such weight gradients are not
    // computed in fp8.
    std::optional<bool> pad_inner_dim = {};
    std::optional<bool> enable_fsdp_float8_all_gather = {};  // no effect: gathers are not in fp8
    bool round_scales_to_power_of_2 = false;
    bool emulate = false;  // emulates fp8 on any device: rounds to 8 bits and multiplies in f32
};

// The recipe for delayed scaling: scales are computed from the largest absolute values of earlier
// steps. These values are a buffer of the layer and are saved with the model.
struct TERecipeKwargs {
    // The default of each field is in parentheses. The Accelerator throws ValueError for a margin
    // below -64, and for an interval or amax_history_len below 1.
    std::optional<bool> use_autocast_during_eval = {};  // whether evaluation uses fp8 (false)
    std::optional<int> margin = {};                     // the scale is divided by 2^margin (0)
    std::optional<int> interval = {};                   // steps between updates of the scale (1)
    // The formats: "HYBRID" (default; e4m3 in forward, e5m2 for gradients), or "E4M3" or "E5M2" for
    // all values.
    std::string fp8_format = {};
    std::optional<int> amax_history_len = {};  // number of steps whose maxima are stored (1024)
    std::string amax_compute_algo = {};        // "most_recent" (default) or "max"
    // Whether fprop, dgrad and wgrad run in higher precision (default: none of them).
    std::optional<std::array<bool, 3>> override_linear_precision = {};
    // Whether MXFP8 block scaling is used (default: false). Not implemented: true throws
    // NotImplementedError, or ValueError if amax_history_len or amax_compute_algo is set.
    std::optional<bool> use_mxfp8_block_scaling = {};
    bool emulate = false;  // the same as in AORecipeKwargs
};

}  // namespace axle::accel
