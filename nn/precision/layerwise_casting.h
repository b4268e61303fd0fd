// Layerwise casting: weights that are kept in a small dtype, and computed with in another one layer
// at a time.
//
//     nn::attach_layerwise_casting_hooks(model, bf16, f32, {.skip_modules_pattern = {"lm_head"}});
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/module.h"

namespace axle::inline v0::nn {

struct LayerwiseCastingOptions {
    // Regular expressions, searched for in the dotted names of modules. A module that is skipped
    // keeps everything below it as it is.
    std::vector<std::string> skip_modules_pattern = {};
    // In place of a list of classes: whether to skip this one.
    std::function<bool(const Module&)> skip_modules = {};
};

// For every Linear, Embedding, Conv2d and ConvTranspose2d that is not skipped: its tensors go to
// `storage`, and casts to `compute` stand for them during each of its calls, through which
// gradients come back. Other layers stay as they are.
// What reads a weight past its layer, as a head that is tied to an embedding, finds `storage`.
// DTypeError for dtypes that are not floating, ValueError for a pattern that makes no sense; then
// nothing has changed.
void attach_layerwise_casting_hooks(Module& module, DType storage, DType compute,
                                    const LayerwiseCastingOptions& options = {});

}  // namespace axle::inline v0::nn
