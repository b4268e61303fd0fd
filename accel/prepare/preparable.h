// Preparable: the types of objects that Accelerator::prepare() changes.
#pragma once

#include <concepts>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "data/loading/loader.h"
#include "kernels/error.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

struct DummyOptim;
struct DummyScheduler;

template <class T>
concept Preparable = std::derived_from<T, nn::Module> || std::derived_from<T, optim::Optimizer> ||
                     std::derived_from<T, optim::Scheduler> || std::same_as<T, data::DataLoader> ||
                     std::same_as<T, DummyOptim> || std::same_as<T, DummyScheduler>;

// A raw, unique or shared pointer, or an optional, that refers to a Preparable.
template <class T>
concept PreparablePointer = !std::is_array_v<T> && requires(T& pointer) {
    static_cast<bool>(pointer);
    requires Preparable<std::remove_cvref_t<decltype(*pointer)>>;
};

template <class T>
concept PreparableElement = Preparable<T> || PreparablePointer<T>;

// The type of a range's elements, as a reference or value.
template <class T>
using RangeElement = decltype(*std::begin(std::declval<T&>()));

// A range that is not itself a Preparable. nn::ModuleList is a range, but also a model.
template <class T>
concept PlainRange = !Preparable<T> && requires(T& range) { std::begin(range) != std::end(range); };

// A range of objects or pointers to objects that prepare() changes, such as a std::vector<Net>.
template <class T>
concept PreparableRange =
    PlainRange<T> && PreparableElement<std::remove_reference_t<RangeElement<T>>>;

// A map whose values are objects or pointers that prepare() changes, such as a
// std::map<std::string, Net>.
template <class T>
concept PreparableMap = PlainRange<T> && requires(RangeElement<T> entry) {
    entry.first;
    requires PreparableElement<std::remove_reference_t<decltype((entry.second))>>;
};

// An object to prepare, and its device_placement.
struct PrepareItem {
    using Object = std::variant<nn::Module*, optim::Optimizer*, optim::Scheduler*,
                                data::DataLoader*, DummyOptim*, DummyScheduler*>;

    Object object;
    std::optional<bool> device_placement = {};
};

// Adds the preparable objects that `object` is or refers to. Throws UsageError for an empty pointer
// or optional. Adds nothing for objects of other types.
template <class T>
void add_prepare_items(std::vector<PrepareItem>& items, T& object,
                       std::optional<bool> device_placement = {}) {
    if constexpr (std::derived_from<T, nn::Module>) {
        items.push_back({static_cast<nn::Module*>(&object), device_placement});
    } else if constexpr (Preparable<T>) {
        items.push_back({&object, device_placement});
    } else if constexpr (PreparablePointer<T>) {
        if (!object) throw UsageError("prepare: a pointer or an optional is empty; pass an object");
        add_prepare_items(items, *object, device_placement);
    } else if constexpr (PreparableRange<T>) {
        for (auto&& element : object) add_prepare_items(items, element, device_placement);
    } else if constexpr (PreparableMap<T>) {
        for (auto&& entry : object) add_prepare_items(items, entry.second, device_placement);
    }
}

}  // namespace axle::accel
