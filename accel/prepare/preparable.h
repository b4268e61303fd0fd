// Preparable: the types of objects that Accelerator::prepare() changes.
#pragma once

#include <concepts>
#include <iterator>
#include <type_traits>
#include <utility>

#include "data/loading/loader.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

template <class T>
concept Preparable = std::derived_from<T, nn::Module> || std::derived_from<T, optim::Optimizer> ||
                     std::derived_from<T, optim::Scheduler> || std::same_as<T, data::DataLoader>;

// A raw, unique or shared pointer, or an optional, that refers to a Preparable.
template <class T>
concept PreparablePointer = !std::is_array_v<T> && requires(T& pointer) {
    static_cast<bool>(pointer);
    requires Preparable<std::remove_cvref_t<decltype(*pointer)>>;
};

template <class T>
concept PreparableElement = Preparable<T> || PreparablePointer<T>;

// The type of *begin of a range.
template <class T>
using RangeElement = decltype(*std::begin(std::declval<T&>()));

// A range that is not a model itself, unlike nn::ModuleList.
template <class T>
concept PlainRange = !Preparable<T> && requires(T& range) { std::begin(range) != std::end(range); };

// A range of objects or pointers to objects that prepare() changes, such as a std::vector<Net>.
template <class T>
concept PreparableRange =
    PlainRange<T> && PreparableElement<std::remove_reference_t<RangeElement<T>>>;

// A map to such objects or pointers, such as a std::map<std::string, Net>.
template <class T>
concept PreparableMap = PlainRange<T> && requires(RangeElement<T> entry) {
    entry.first;
    requires PreparableElement<std::remove_reference_t<decltype((entry.second))>>;
};

}  // namespace axle::accel
