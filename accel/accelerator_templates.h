// The definitions of Accelerator's member templates. Do not include this file; include
// accel/accelerator.h.
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "accel/accelerator.h"
#include "dist/group/operations.h"

namespace axle::accel {

template <class... T>
    requires(sizeof...(T) > 1)
std::tuple<T&...> Accelerator::prepare(T&... objects) {
    std::vector<PrepareItem> items;
    (add_prepare_items(items, objects), ...);
    prepare_items(items);
    return {objects...};
}

template <class T>
T& Accelerator::prepare(T& object) {
    return prepare_object(object);
}

template <class... T>
std::tuple<T&...> Accelerator::prepare(std::initializer_list<bool> device_placement,
                                       T&... objects) {
    check_placements(device_placement.size(), sizeof...(T));
    const bool* placement = device_placement.begin();
    std::vector<PrepareItem> items;
    (add_prepare_items(items, objects, *placement++), ...);
    prepare_items(items);
    return {objects...};
}

template <class T>
T& Accelerator::prepare_object(T& object, std::optional<bool> device_placement,
                               bool evaluation_mode) {
    std::vector<PrepareItem> items;
    add_prepare_items(items, object, device_placement);
    prepare_items(items, evaluation_mode);
    return object;
}

template <std::derived_from<nn::Module> Model>
Model& Accelerator::prepare_model(Model& model, std::optional<bool> device_placement,
                                  bool evaluation_mode) {
    return prepare_object(model, device_placement, evaluation_mode);
}

template <std::derived_from<optim::Optimizer> O>
O& Accelerator::prepare_optimizer(O& optimizer, std::optional<bool> device_placement) {
    return prepare_object(optimizer, device_placement);
}

template <std::derived_from<optim::Scheduler> S>
S& Accelerator::prepare_scheduler(S& scheduler) {
    return prepare_object(scheduler);
}

template <class T>
T& Accelerator::unwrap_model(T& model, bool keep_fp32_wrapper, bool /*keep_torch_compile*/) {
    if constexpr (std::is_convertible_v<T&, nn::Module&>)
        if (!keep_fp32_wrapper) remove_autocast(model);
    return model;
}

template <class... Owners>
    requires(sizeof...(Owners) > 0)
void Accelerator::free_memory(Owners&... owners) {
    free_memory();
    (owners.reset(), ...);
    free_memory();  // frees the cached memory of the destroyed objects
}

template <StructuredType T>
T Accelerator::gather_for_metrics(const T& input, bool use_gather_object) const {
    return dist::through_members(
        input, [&](const Tree& tree) { return gather_for_metrics(tree, use_gather_object); });
}

}  // namespace axle::accel
