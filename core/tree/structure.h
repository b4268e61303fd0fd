// Converts values of user types to Trees and back, so that functions on Trees also accept user
// types:
//
//     struct Batch {
//         Tensor ids;
//         std::optional<Tensor> labels;
//         template <class F>
//         void visit(F&& f) { f("ids", ids), f("labels", labels); }
//     };
//     Batch half = slice_tensors(batch, 0, 4);
//
// Structured types are tensors, Trees, numbers and strings; vectors, arrays, maps with string keys,
// pairs, tuples and optionals of structured types; and structs with a visit() that visits their
// members. A struct becomes a map, a pair or tuple becomes a list, and an empty optional becomes
// null.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/tree/tree.h"
#include "core/tree/tree_utils.h"
#include "kernels/error.h"

namespace axle {

// Converts a T to a Tree with to(value), and back with from(like, tree). `like` is the original
// value, which provides what a tree cannot store. Specialize this template for other user types.
template <class T>
struct Structure;

template <class T>
concept Structured = requires(const T& value, const Tree& tree) {
    { Structure<T>::to(value) } -> std::same_as<Tree>;
    { Structure<T>::from(value, tree) } -> std::same_as<T>;
};

// A structured type other than Tree. For Tree, the functions have overloads without templates.
template <class T>
concept StructuredType = Structured<T> && !std::same_as<T, Tree>;

template <Structured T>
Tree to_tree(const T& value) {
    return Structure<T>::to(value);
}
// Converts a tree to a T. Throws ValueError if the tree does not have the structure of `like`, and
// IndexError if a member of a struct is missing.
template <Structured T>
T from_tree(const T& like, const Tree& tree) {
    return Structure<T>::from(like, tree);
}
// Converts the value to a tree, calls f(tree), and returns the result converted back to a T.
template <Structured T, class F>
T apply_as_tree(const T& value, F&& f) {
    return from_tree(value, f(to_tree(value)));
}

template <>
struct Structure<Tree> {
    static Tree to(const Tree& value) { return value; }
    static Tree from(const Tree&, const Tree& tree) { return tree; }
};

template <>
struct Structure<Tensor> {
    static Tree to(const Tensor& value) { return value; }
    static Tensor from(const Tensor&, const Tree& tree) {
        return tree.is_null() ? Tensor() : tree.tensor();
    }
};

template <>
struct Structure<std::string> {
    static Tree to(const std::string& value) { return value; }
    static std::string from(const std::string&, const Tree& tree) { return tree.string(); }
};

template <class T>
    requires(std::is_arithmetic_v<T> && !std::same_as<T, char>)
struct Structure<T> {
    static Tree to(T value) { return value; }
    static T from(T, const Tree& tree) {
        if constexpr (std::same_as<T, bool>) {
            return tree.boolean();
        } else if constexpr (std::floating_point<T>) {
            return static_cast<T>(tree.number());
        } else {
            const std::int64_t value = tree.integer();
            if (!std::in_range<T>(value))
                throw ValueError(str("from_tree: ", value, " does not fit into ",
                                     std::is_signed_v<T> ? "a signed" : "an unsigned",
                                     " integer of ", 8 * sizeof(T), " bits"));
            return static_cast<T>(value);
        }
    }
};

template <Structured T>
struct Structure<std::optional<T>> {
    static Tree to(const std::optional<T>& value) { return value ? to_tree(*value) : Tree(); }
    static std::optional<T> from(const std::optional<T>& like, const Tree& tree) {
        if (tree.is_null()) return std::nullopt;
        if (!like) return from_default(tree);
        return from_tree(*like, tree);
    }

  private:
    static std::optional<T> from_default(const Tree& tree) {
        if constexpr (std::default_initializable<T>) {
            return from_tree(T{}, tree);
        } else {
            throw ValueError(
                str("from_tree: expected no value, got ", name_of(tree.kind()),
                    ": the optional is empty and its type has no default constructor"));
        }
    }
};

namespace structure {

Tree sorted_by_key(Tree map);

// Throws ValueError unless the list has `size` elements.
inline void check_size(const Tree& list, std::size_t size) {
    if (list.elements().size() != size)
        throw ValueError(
            str("from_tree: expected ", size, " elements, got ", list.elements().size()));
}

template <class T>
void push_back(Tree& list, const T& value) {
    list.push_back(to_tree<T>(value));
}

template <class M, class T = typename M::mapped_type>
M map_from(const M& like, const Tree& tree) {
    M map;
    for (const auto& [key, value] : tree.entries()) {
        const auto known = like.find(key);
        if (known != like.end()) {
            map.emplace(key, from_tree<T>(known->second, value));
        } else if constexpr (std::default_initializable<T>) {
            map.emplace(key, from_tree<T>(T{}, value));
        } else {
            throw ValueError(
                str("from_tree: the map must contain all keys of the tree, because the type of its "
                    "values has no default constructor: '",
                    key, "' is missing"));
        }
    }
    return map;
}

// Converts pairs, tuples and arrays.
template <class P>
struct Product {
    static Tree to(const P& value) {
        Tree list = Tree::list();
        std::apply([&](const auto&... members) { (push_back(list, members), ...); }, value);
        return list;
    }
    static P from(const P& like, const Tree& tree) {
        check_size(tree, std::tuple_size_v<P>);
        return members(like, tree, std::make_index_sequence<std::tuple_size_v<P>>());
    }

  private:
    template <std::size_t... I>
    static P members(const P& like, const Tree& tree, std::index_sequence<I...>) {
        return P{from_tree<std::tuple_element_t<I, P>>(std::get<I>(like), tree.elements()[I])...};
    }
};

template <class T>
concept IsProduct = std::derived_from<Structure<T>, Product<T>>;

struct Visitor {
    template <class T>
    void operator()(std::string_view, T&) const {}
};

}  // namespace structure

template <Structured T>
struct Structure<std::vector<T>> {
    static Tree to(const std::vector<T>& values) {
        Tree list = Tree::list();
        list.elements().reserve(values.size());
        for (const auto& value : values) structure::push_back<T>(list, value);
        return list;
    }
    // The tree can have more or fewer elements than `like`. For additional elements, the last
    // element of `like` is used.
    static std::vector<T> from(const std::vector<T>& like, const Tree& tree) {
        std::vector<T> values;
        values.reserve(tree.elements().size());
        for (const Tree& element : tree.elements()) {
            if (!like.empty()) {
                const std::size_t i = values.size() < like.size() ? values.size() : like.size() - 1;
                values.push_back(from_tree<T>(like[i], element));
            } else if constexpr (std::default_initializable<T>) {
                values.push_back(from_tree<T>(T{}, element));
            } else {
                throw ValueError(str("from_tree: cannot fill an empty vector with ",
                                     tree.elements().size(),
                                     tree.elements().size() == 1 ? " element" : " elements",
                                     ": the type of the elements has no default constructor; add "
                                     "an element to the vector"));
            }
        }
        return values;
    }
};

template <Structured T, std::size_t n>
struct Structure<std::array<T, n>> : structure::Product<std::array<T, n>> {};

template <Structured A, Structured B>
struct Structure<std::pair<A, B>> : structure::Product<std::pair<A, B>> {};

template <Structured... T>
struct Structure<std::tuple<T...>> : structure::Product<std::tuple<T...>> {};

template <Structured T, class Compare>
struct Structure<std::map<std::string, T, Compare>> {
    using Map = std::map<std::string, T, Compare>;
    static Tree to(const Map& values) {
        Tree map = Tree::map();
        for (const auto& [key, value] : values) map.entries().push_back({key, to_tree<T>(value)});
        return map;
    }
    static Map from(const Map& like, const Tree& tree) { return structure::map_from(like, tree); }
};

template <Structured T>
struct Structure<std::unordered_map<std::string, T>> {
    using Map = std::unordered_map<std::string, T>;
    // The entries are sorted by key, so that all processes have the same order.
    static Tree to(const Map& values) {
        Tree map = Tree::map();
        for (const auto& [key, value] : values) map.entries().push_back({key, to_tree<T>(value)});
        return structure::sorted_by_key(std::move(map));
    }
    static Map from(const Map& like, const Tree& tree) { return structure::map_from(like, tree); }
};

// Converts structs with `template <class F> void visit(F&& f) { f("name", name); ... }`. visit()
// does not need to be const.
template <class T>
    requires std::copy_constructible<T> &&
             requires(T& value, structure::Visitor visitor) { value.visit(visitor); }
struct Structure<T> {
    static Tree to(const T& value) {
        Tree map = Tree::map();
        // The cast is safe, because visit() does not modify the value.
        const_cast<T&>(value).visit([&]<class M>(std::string_view name, M& member) {
            map.set(name, to_tree<std::remove_const_t<M>>(member));
        });
        return map;
    }
    static T from(const T& like, const Tree& tree) {
        T value = like;
        value.visit([&]<class M>(std::string_view name, M& member) {
            member = from_tree<M>(member, tree[name]);
        });
        return value;
    }
};

// --- the functions of core/tree/tree_utils.h for structured types

template <StructuredType T>
T recursively_apply(const std::function<Tree(const Tree&)>& f, const T& value,
                    const std::function<bool(const Tree&)>& test = {},
                    bool error_on_other_type = false) {
    return apply_as_tree(
        value, [&](const Tree& t) { return recursively_apply(f, t, test, error_on_other_type); });
}
template <StructuredType T>
T concatenate(const std::vector<T>& values, std::int64_t dim = 0) {
    std::vector<Tree> trees;
    for (const T& value : values) trees.push_back(to_tree(value));
    const Tree all = concatenate(trees, dim);  // throws ValueError if `trees` is empty
    return from_tree(values[0], all);
}
template <StructuredType T>
T slice_tensors(const T& value, std::int64_t begin, std::int64_t end) {
    return apply_as_tree(value, [&](const Tree& t) { return slice_tensors(t, begin, end); });
}
template <StructuredType T>
std::int64_t find_batch_size(const T& value) {
    return find_batch_size(to_tree(value));
}
template <StructuredType T>
std::optional<std::int64_t> ignorant_find_batch_size(const T& value) {
    return ignorant_find_batch_size(to_tree(value));
}
template <StructuredType T>
std::optional<Device> find_device(const T& value) {
    return find_device(to_tree(value));
}
template <StructuredType T>
T send_to_device(const T& value, Device device, bool non_blocking = false,
                 const std::vector<std::string>& skip_keys = {}) {
    return apply_as_tree(
        value, [&](const Tree& t) { return send_to_device(t, device, non_blocking, skip_keys); });
}
template <StructuredType T>
T convert_to_fp32(const T& value) {
    return apply_as_tree(value, [](const Tree& t) { return convert_to_fp32(t); });
}
template <StructuredType T>
T get_data_structure(const T& value) {
    return apply_as_tree(value, [](const Tree& t) { return get_data_structure(t); });
}
template <StructuredType T>
T initialize_tensors(const T& structure) {
    return apply_as_tree(structure, [](const Tree& t) { return initialize_tensors(t); });
}
template <StructuredType T>
Tree get_shape(const T& value) {
    return get_shape(to_tree(value));
}
template <StructuredType T>
Tree listify(const T& value) {
    return listify(to_tree(value));
}
template <StructuredType T>
T pad_input_tensors(const T& value, std::int64_t batch_size, int num_processes,
                    std::int64_t dim = 0) {
    return apply_as_tree(
        value, [&](const Tree& t) { return pad_input_tensors(t, batch_size, num_processes, dim); });
}

}  // namespace axle
