// Layerwise casting: weights are stored in a small dtype and cast to another one for computation,
// one layer at a time.
//
//     nn::attach_layerwise_casting_hooks(model, bf16, f32, {.skip_modules_pattern = {"lm_head"}});
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/module.h"

namespace axle::nn {

struct LayerwiseCastingOptions {
    // Regular expressions that are searched for in the dotted names of modules. A module that
    // matches is skipped with all modules below it.
    std::vector<std::string> skip_modules_pattern = {};
    // Returns whether to skip a module; replaces the list of classes in diffusers.
    std::function<bool(const Module&)> skip_modules = {};
};

// Converts the tensors of every Linear, Embedding, Conv2d and ConvTranspose2d that is not skipped
// to `storage`. During each call of such a layer its tensors are replaced by casts to `compute`,
// which propagate gradients. Other layers do not change. Code that reads a weight without calling
// its layer, such as a head tied to an embedding, sees the `storage` dtype. Throws DTypeError
// unless both dtypes are floating, and ValueError for an invalid pattern; nothing has been changed
// then.
void attach_layerwise_casting_hooks(Module& module, DType storage, DType compute,
                                    const LayerwiseCastingOptions& options = {});

}  // namespace axle::nn
