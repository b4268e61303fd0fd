#include "nn/precision/layerwise_casting.h"

#include "core/text/pattern.h"
#include "nn/layers/conv.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"

namespace axle::nn {
namespace {

bool is_cast(const Module& module) {
    return dynamic_cast<const Linear*>(&module) != nullptr ||
           dynamic_cast<const Embedding*>(&module) != nullptr ||
           dynamic_cast<const Conv2d*>(&module) != nullptr ||
           dynamic_cast<const ConvTranspose2d*>(&module) != nullptr;
}

std::vector<Pattern> compiled(const std::vector<std::string>& patterns) {
    std::vector<Pattern> result;
    for (const std::string& pattern : patterns) {
        try {
            result.emplace_back(pattern);
        } catch (const ValueError& error) {
            throw ValueError(
                str("attach_layerwise_casting_hooks: a pattern must be a regular "
                    "expression: '",
                    pattern, "': ", error.what()));
        }
    }
    return result;
}

bool is_below(const std::string& name, const std::string& parent) {
    return parent.empty() || name.starts_with(parent + ".");
}

}  // namespace

void attach_layerwise_casting_hooks(Module& module, DType storage, DType compute,
                                    const LayerwiseCastingOptions& options) {
    for (const DType dtype : {storage, compute})
        if (!is_floating(dtype))
            throw DTypeError(
                str("attach_layerwise_casting_hooks: storage and compute must be floating dtypes: ",
                    storage, " and ", compute));
    const std::vector<Pattern> patterns = compiled(options.skip_modules_pattern);
    const auto is_skipped = [&](const std::string& name, const Module& one) {
        if (options.skip_modules && options.skip_modules(one)) return true;
        return std::any_of(patterns.begin(), patterns.end(),
                           [&](const Pattern& pattern) { return pattern.is_found_in(name); });
    };
    std::vector<std::string> skipped;  // names of the skipped modules, without modules below them
    for (const auto& [name, one] : module.named_modules()) {
        const bool within =
            std::any_of(skipped.begin(), skipped.end(),
                        [&](const std::string& parent) { return is_below(name, parent); });
        if (within) continue;
        if (is_skipped(name, *one))
            skipped.push_back(name);
        else if (is_cast(*one))
            one->set_layer_cast(LayerCast{storage, compute});
    }
}

}  // namespace axle::nn
