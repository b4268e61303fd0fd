// Layerwise casting: weights are stored in a small dtype, and each layer casts its weights to
// another dtype for the duration of its call.
//
//     nn::attach_layerwise_casting_hooks(model, bf16, f32, {.skip_modules_pattern = {"lm_head"}});
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/module.h"

namespace axle::nn {

struct LayerwiseCastingOptions {
    // Regular expressions. A module is skipped, with all modules below it, if an expression matches
    // a part of its dotted name.
    std::vector<std::string> skip_modules_pattern = {};
    // Returns whether to skip a module, with all modules below it. Corresponds to the argument
    // skip_modules_classes in diffusers. If the function is empty, only skip_modules_pattern
    // selects modules.
    std::function<bool(const Module&)> skip_modules = {};
};

// Converts the tensors of every Linear, Embedding, Conv2d and ConvTranspose2d that is not skipped
// to `storage`. Each call of such a layer casts its parameters to `compute`; gradients flow through
// the casts. All other layers are unchanged. Code that reads a weight without calling its layer,
// such as a head tied to an embedding, gets the `storage` dtype. Throws DTypeError unless both
// dtypes are floating, and ValueError for an invalid pattern; the module is then unchanged.
void attach_layerwise_casting_hooks(Module& module, DType storage, DType compute,
                                    const LayerwiseCastingOptions& options = {});

}  // namespace axle::nn
