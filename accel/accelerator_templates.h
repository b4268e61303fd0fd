// The definitions of Accelerator's member templates. Do not include this file; include
// accel/accelerator.h.
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <tuple>
#include <type_traits>

#include "accel/accelerator.h"
#include "dist/group/operations.h"
#include "kernels/error.h"

namespace axle::accel {

template <class... T>
    requires(sizeof...(T) > 1)
std::tuple<T&...> Accelerator::prepare(T&... objects) {
    (prepare_one(objects), ...);
    return {objects...};
}

template <class T>
T& Accelerator::prepare(T& object) {
    prepare_one(object);
    return object;
}

template <class... T>
std::tuple<T&...> Accelerator::prepare(std::initializer_list<bool> device_placement,
                                       T&... objects) {
    check_placements(device_placement.size(), sizeof...(T));
    const bool* placement = device_placement.begin();
    (prepare_one(objects, *placement++), ...);
    return {objects...};
}

template <std::derived_from<nn::Module> Model>
Model& Accelerator::prepare_model(Model& model, std::optional<bool> device_placement,
                                  bool evaluation_mode) {
    prepare_one(model, device_placement, evaluation_mode);
    return model;
}

template <std::derived_from<optim::Optimizer> O>
O& Accelerator::prepare_optimizer(O& optimizer, std::optional<bool> device_placement) {
    prepare_one(optimizer, device_placement);
    return optimizer;
}

template <std::derived_from<optim::Scheduler> S>
S& Accelerator::prepare_scheduler(S& scheduler) {
    prepare_one(scheduler);
    return scheduler;
}

template <class T>
    requires(!Preparable<T>)
void Accelerator::prepare_one(T& object, Placement placement) {
    if constexpr (PreparablePointer<T>) {
        if (!object) throw UsageError("prepare: a pointer or an optional is empty");
        prepare_one(*object, placement);
    } else if constexpr (PreparableRange<T>) {
        for (auto&& element : object) prepare_one(element, placement);
    } else if constexpr (PreparableMap<T>) {
        for (auto&& entry : object) prepare_one(entry.second, placement);
    }
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
