// Tree: the nested value that batches, state dicts, metrics and collectives share.
//
//     Tree batch{{"input_ids", ids}, {"labels", labels}};
//     const Tensor& ids = batch["input_ids"];
//     Tree state{{"epoch", 3}, {"betas", Tree::list({0.9, 0.999})}, {"nested", {{"ok", true}}}};
//
// Braces always mean a map; lists are spelled Tree::list.
#pragma once

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

namespace axle::inline v0 {

// Functions that walk a Tree refuse a deeper one with a ValueError, so that no file and no peer can
// exhaust the stack. A tensor alone has depth 0.
inline constexpr int kMaxTreeDepth = 64;

// Null, a tensor, an integer, a number, a boolean, a string, a list, or a map that remembers the
// order of insertion. A value: copying copies lists and maps, and the handles of tensors. Reading
// one Tree from several threads is safe.
class Tree {
  public:
    enum class Kind : std::uint8_t { null, tensor, integer, number, flag, string, list, map };
    struct Entry;
    using List = std::vector<Tree>;
    using Map = std::vector<Entry>;

    // What isn't explicit here is what makes `batch.set("lr", 0.1)` and the braces above work.
    Tree();
    ~Tree();
    Tree(const Tree& other);
    Tree(Tree&& other) noexcept;
    Tree& operator=(const Tree& other);
    Tree& operator=(Tree&& other) noexcept;
    Tree(std::initializer_list<Entry> entries);  // a map; ValueError if a key comes twice
    Tree(Tensor tensor);                         // NOLINT: null if undefined
    Tree(std::string text);                      // NOLINT
    Tree(std::string_view text);                 // NOLINT
    Tree(const char* text);                      // NOLINT
    template <class T>
        requires std::is_arithmetic_v<T>
    Tree(T value);  // NOLINT
    // A template, so that braces are never read as a list.
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

    // The value, or a ValueError that says what it is instead.
    const Tensor& tensor() const;
    Tensor& tensor();
    std::int64_t integer() const;
    // Of an integer too, and of the strings that stand for the numbers that JSON lacks (to_json).
    double number() const;
    bool boolean() const;
    const std::string& string() const;
    operator const Tensor&() const { return tensor(); }  // NOLINT

    // --- lists and maps; on another kind, ValueError
    std::size_t size() const;
    bool empty() const { return size() == 0; }
    const List& elements() const;
    List& elements();
    // In order: `for (const auto& [key, value] : tree.entries())`.
    const Map& entries() const;
    Map& entries();

    // The value of a key. A missing key is an IndexError that lists those there are.
    const Tree& operator[](std::string_view key) const;
    Tree& operator[](std::string_view key);
    // An element of a list; IndexError beyond its end.
    const Tree& operator[](std::integral auto index) const { return at(checked_integer(index)); }
    Tree& operator[](std::integral auto index) {
        return const_cast<Tree&>(std::as_const(*this).at(checked_integer(index)));
    }
    // Null if the key is missing.
    const Tree* find(std::string_view key) const;
    bool contains(std::string_view key) const { return find(key) != nullptr; }
    // Adds an entry, or replaces its value. A null Tree becomes a map first.
    Tree& set(std::string_view key, Tree value);
    // A null Tree becomes a list first.
    void push_back(Tree element);

  private:
    template <std::integral T>
    static std::int64_t checked_integer(T value) {
        if (!std::in_range<std::int64_t>(value)) throw_beyond_int64(value);
        return static_cast<std::int64_t>(value);
    }
    [[noreturn]] static void throw_beyond_int64(std::uint64_t value);
    [[noreturn]] void throw_not(const char* wanted) const;
    const Tree& at(std::int64_t index) const;

    // In the order of Kind.
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
        value_ = value;
    } else if constexpr (std::floating_point<T>) {
        value_ = static_cast<double>(value);
    } else {
        value_ = checked_integer(value);
    }
}

template <std::same_as<Tree::List> L>
Tree::Tree(L elements) : value_(std::move(elements)) {}

// The same tree with f(tensor) in place of every tensor.
Tree map_tensors(const Tree& tree, const std::function<Tree(const Tensor&)>& f);
// In the order of the tree.
void for_each_tensor(const Tree& tree, const std::function<void(const Tensor&)>& f);

// JSON text, indented by `indent` spaces, on one line if it is negative. Numbers come back to the
// bit: the shortest digits that say them, and the strings "NaN", "Infinity" and "-Infinity" for
// what JSON lacks. ValueError for a tensor, or for text that isn't UTF-8.
std::string to_json(const Tree& tree, int indent = 2);
// ValueError, with line and column where the text isn't JSON; also for a key that comes twice and
// for an integer beyond 64 bits.
Tree from_json(std::string_view text);

// For people: tensors by dtype and shape, as in {"labels": int64 [8], "lr": 0.1}.
std::ostream& operator<<(std::ostream& out, const Tree& tree);

}  // namespace axle::inline v0
