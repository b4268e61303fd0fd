// Tree: a nested value, used for batches, state dicts, metrics and collectives.
//
//     Tree batch{{"input_ids", ids}, {"labels", labels}};
//     const Tensor& ids = batch["input_ids"];
//     Tensor labels = batch["labels"].to(device);
//     Tree state{{"epoch", 3}, {"betas", Tree::list({0.9, 0.999})}, {"nested", {{"ok", true}}}};
//
// Braces never create a list. Use Tree::list to create one.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/tensor.h"

namespace axle {

// The maximum depth of a Tree; a single tensor has depth 0. Functions that visit all levels of a
// Tree, and from_json(), throw ValueError if it is deeper, so that no file or remote process can
// exhaust the stack.
inline constexpr int kMaxTreeDepth = 64;

// A null, tensor, integer, number, boolean, string, list or map. Maps keep the insertion order.
// Trees are values: copying a Tree copies its lists, maps and tensor handles, but not tensor data.
// Concurrent reads are safe.
class Tree {
  public:
    enum class Kind : std::uint8_t { null, tensor, integer, number, flag, string, list, map };
    struct Entry;
    using List = std::vector<Tree>;
    using Map = std::vector<Entry>;

    // The constructors are implicit, so that `batch.set("lr", 0.1)` and the braces above compile.
    Tree();
    ~Tree();
    Tree(const Tree& other);
    Tree(Tree&& other) noexcept;
    Tree& operator=(const Tree& other);
    Tree& operator=(Tree&& other) noexcept;
    Tree(std::initializer_list<Entry>
             entries);            // creates a map; throws ValueError for duplicate keys
    Tree(Tensor tensor);          // NOLINT: null if undefined
    Tree(std::string text);       // NOLINT
    Tree(std::string_view text);  // NOLINT
    Tree(const char* text);       // NOLINT
    template <class T>
        requires std::is_arithmetic_v<T>
    Tree(T value);  // NOLINT: throws ValueError for an integer above INT64_MAX
    // This constructor is a template, so that braces never create a list.
    template <std::same_as<List> L>
    Tree(L elements);  // NOLINT

    static Tree list();
    static Tree list(List elements);
    static Tree map();

    Kind kind() const { return static_cast<Kind>(value_.index()); }
    bool is_null() const { return kind() == Kind::null; }
    bool is_tensor() const { return kind() == Kind::tensor; }
    bool is_string() const { return kind() == Kind::string; }
    bool is_boolean() const { return kind() == Kind::flag; }
    bool is_integer() const { return kind() == Kind::integer; }
    bool is_number() const { return kind() == Kind::number || is_integer(); }
    bool is_list() const { return kind() == Kind::list; }
    bool is_map() const { return kind() == Kind::map; }

    // Return the value. Throw ValueError, which names the actual kind, if the Tree has another
    // kind.
    const Tensor& tensor() const;
    Tensor& tensor();
    std::int64_t integer() const;
    // Returns a number. Integers, and the strings that to_json() writes for NaN and infinities, are
    // converted.
    double number() const;
    bool boolean() const;
    const std::string& string() const;
    operator const Tensor&() const { return tensor(); }  // NOLINT

    // --- properties of the tensor; these functions throw the errors of tensor()
    const Shape& shape() const { return tensor().shape(); }
    std::int64_t size(std::int64_t dim) const { return tensor().size(dim); }
    int dim() const { return tensor().dim(); }
    std::int64_t numel() const { return tensor().numel(); }
    DType dtype() const { return tensor().dtype(); }
    Device device() const { return tensor().device(); }
    double item() const { return tensor().item(); }
    // Return the tensor on another device or with another dtype, as Tensor::to() does. To move all
    // tensors of a list or map, use send_to_device() (core/tree/tree_utils.h).
    Tensor to(Device device, bool non_blocking = false) const {
        return tensor().to(device, non_blocking);
    }
    Tensor to(DType dtype) const { return tensor().to(dtype); }

    // Returns the tensors of a list or map in its order:
    //     auto [ids, mask, labels] = batch.tensors<3>();
    // Throws ValueError, which lists the entries, unless there are exactly N entries and all are
    // tensors. A Tree with two tensors can also be bound directly, by reference:
    //     for (auto& [x, y] : loader) ...
    template <std::size_t N>
    std::array<Tensor, N> tensors() const {
        return [this]<std::size_t... I>(std::index_sequence<I...>) {
            return std::array<Tensor, N>{nth_tensor(I, N)...};
        }(std::make_index_sequence<N>());
    }
    // Return tensor I of a list or map with two tensors. Structured bindings call these functions.
    template <std::size_t I>
    friend Tensor& get(Tree& tree) {
        return const_cast<Tensor&>(tree.nth_tensor(I, 2));
    }
    template <std::size_t I>
    friend const Tensor& get(const Tree& tree) {
        return tree.nth_tensor(I, 2);
    }
    template <std::size_t I>
    friend Tensor&& get(Tree&& tree) {
        return std::move(const_cast<Tensor&>(tree.nth_tensor(I, 2)));
    }

    // --- lists and maps; these functions throw ValueError for other kinds
    // Returns the number of elements or entries. size(dim) is the size of a tensor.
    std::size_t size() const;
    bool empty() const { return size() == 0; }
    const List& elements() const&;
    List& elements() &;
    List elements() &&;  // by value, so that a loop over the elements of a result is safe
    // Returns the entries in insertion order: `for (const auto& [key, value] : tree.entries())`.
    const Map& entries() const&;
    Map& entries() &;
    Map entries() &&;

    // Returns the value of a key. If the key is missing, throws IndexError, which lists the
    // existing keys. set() adds a key.
    const Tree& operator[](std::string_view key) const;
    Tree& operator[](std::string_view key);
    // Returns an element of a list. Throws IndexError if the index is out of range, and ValueError
    // if it exceeds int64.
    const Tree& operator[](std::integral auto index) const { return at(checked_integer(index)); }
    Tree& operator[](std::integral auto index) {
        return const_cast<Tree&>(std::as_const(*this).at(checked_integer(index)));
    }
    // Returns a pointer to the value of a key, or nullptr if the key is missing.
    const Tree* find(std::string_view key) const;
    bool contains(std::string_view key) const { return find(key) != nullptr; }
    // Adds an entry, or replaces its value if the key exists, and returns the stored value. A null
    // Tree first becomes a map.
    Tree& set(std::string_view key, Tree value);
    // Adds an element to the end of a list. A null Tree first becomes a list.
    void push_back(Tree element);

  private:
    template <std::integral T>
    static std::int64_t checked_integer(T value) {
        if (!std::in_range<std::int64_t>(value)) throw_beyond_int64(value);
        return static_cast<std::int64_t>(value);
    }
    [[noreturn]] static void throw_beyond_int64(std::uint64_t value);
    void set_flag(bool value);
    void set_number(double value);
    void set_integer(std::int64_t value);
    [[noreturn]] void throw_wrong_kind(const char* expected, const char* fix = "") const;
    const Tree& at(std::int64_t index) const;
    // Returns tensor i of a list or map that must consist of `count` tensors.
    const Tensor& nth_tensor(std::size_t i, std::size_t count) const;

    // The value, with the alternatives in the order of Kind.
    std::variant<std::monostate, Tensor, std::int64_t, double, bool, std::string, List, Map> value_;
};

struct Tree::Entry {
    std::string key;
    Tree value;
};

template <class T>
    requires std::is_arithmetic_v<T>
Tree::Tree(T value) {
    if constexpr (std::same_as<T, bool>) {
        set_flag(value);
    } else if constexpr (std::floating_point<T>) {
        set_number(static_cast<double>(value));
    } else {
        set_integer(checked_integer(value));
    }
}

template <std::same_as<Tree::List> L>
Tree::Tree(L elements) : value_(std::move(elements)) {}

// Returns the tree with every tensor replaced by f(tensor).
Tree map_tensors(const Tree& tree, const std::function<Tree(const Tensor&)>& f);
// Calls f for every tensor, in tree order.
void for_each_tensor(const Tree& tree, const std::function<void(const Tensor&)>& f);

// Returns JSON text, indented by `indent` spaces, or on one line if indent is negative. Numbers are
// written with the shortest digits from which the same number can be parsed. NaN and infinities
// become the strings "NaN", "Infinity" and "-Infinity". Throws ValueError for a tensor or for text
// that is not UTF-8.
std::string to_json(const Tree& tree, int indent = 2);
// Parses JSON. Throws ValueError, with the position, for invalid JSON. Duplicate keys and integers
// beyond int64 also throw ValueError. The values of hostile text, such as [0,0,0], need up to 64
// bytes of memory per byte of text; the values of ordinary text need 4 to 8 bytes. Throws
// ValueError if the values need more than `max_memory` bytes. The time is dominated by sorting the
// keys of each map.
Tree from_json(std::string_view text, std::size_t max_memory = SIZE_MAX);

// Prints a summary, with tensors as dtype and shape: {"labels": int64 [8], "lr": 0.1}. To print the
// values of a tensor, write `out << tree["labels"].tensor()`.
std::ostream& operator<<(std::ostream& out, const Tree& tree);

}  // namespace axle

// These specializations make `auto& [x, y] = tree` bind two tensors.
template <>
struct std::tuple_size<axle::Tree> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, axle::Tree> {
    static_assert(I < 2, "a Tree is bound to two names; use tree.tensors<N>() for other numbers");
    using type = axle::Tensor;
};
