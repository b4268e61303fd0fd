// map_result(), which applies a function to the tensors in the result of a module's call.
#pragma once

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/tensor.h"
#include "core/tree/structure.h"
#include "core/tree/tree_utils.h"

namespace axle::nn::results {

template <class T>
inline constexpr bool is_pair = false;
template <class A, class B>
inline constexpr bool is_pair<std::pair<A, B>> = true;
template <class T>
inline constexpr bool is_tuple = false;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;

// Replaces each defined tensor t of a result by f(t), in the same order in every call. Results are
// tensors, pairs, tuples and values of structured types (core/tree/structure.h). Values of other
// types are returned unchanged.
template <class T>
T map_result(T y, const std::function<Tensor(const Tensor&)>& f) {
    if constexpr (std::is_same_v<T, Tensor>) {
        return y.defined() ? f(y) : y;
    } else if constexpr (is_pair<T>) {
        auto first = map_result(std::move(y.first), f);
        return T(std::move(first), map_result(std::move(y.second), f));
    } else if constexpr (is_tuple<T>) {
        return std::apply([&](auto&... each) { return T{map_result(std::move(each), f)...}; }, y);
    } else if constexpr (Structured<T>) {
        return apply_as_tree(y, [&](const Tree& tree) {
            return map_tensors(tree, [&](const Tensor& t) { return t.defined() ? f(t) : t; });
        });
    } else {
        return y;
    }
}

}  // namespace axle::nn::results
