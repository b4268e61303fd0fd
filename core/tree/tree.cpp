#include "core/tree/tree.h"

#include <algorithm>
#include <limits>

#include "core/files/file.h"
#include "core/tree/tree_checks.h"
#include "core/tree/tree_utils.h"

namespace axle::tree {

void check_keys(const char* op, const Tree::Map& entries) {
    if (entries.size() < 2) return;
    std::vector<std::string_view> keys;
    keys.reserve(entries.size());
    for (const Tree::Entry& entry : entries) keys.push_back(entry.key);
    std::sort(keys.begin(), keys.end());
    const auto duplicate = std::adjacent_find(keys.begin(), keys.end());
    if (duplicate != keys.end())
        throw ValueError(str(op, ": duplicate key: ", in_quotes(*duplicate)));
}

}  // namespace axle::tree

namespace axle {
namespace {

using tree::check_depth;
using tree::check_keys;

std::string keys_of(const Tree::Map& entries) {
    constexpr std::size_t kShown = 32, kMaxLength = 1000;
    if (entries.empty()) return "none";
    std::string text;
    std::size_t i = 0;
    for (; i < std::min(entries.size(), kShown) && text.size() < kMaxLength; ++i)
        text += (i == 0 ? "" : ", ") + in_quotes(entries[i].key);
    if (i < entries.size()) text += str(" and ", entries.size() - i, " more");
    return text;
}

Tree map_at(const Tree& tree, const std::function<Tree(const Tensor&)>& f, int depth) {
    check_depth("map_tensors", depth);
    if (tree.is_tensor()) return f(tree.tensor());
    if (tree.is_list()) {
        Tree::List elements;
        elements.reserve(tree.size());
        for (const Tree& element : tree.elements())
            elements.push_back(map_at(element, f, depth + 1));
        return elements;
    }
    if (!tree.is_map()) return tree;
    Tree result = Tree::map();
    result.entries().reserve(tree.size());
    for (const auto& [key, value] : tree.entries())
        result.entries().push_back({key, map_at(value, f, depth + 1)});
    return result;
}

void visit_at(const Tree& tree, const std::function<void(const Tensor&)>& f, int depth) {
    check_depth("for_each_tensor", depth);
    if (tree.is_tensor()) return f(tree.tensor());
    if (tree.is_list())
        for (const Tree& element : tree.elements()) visit_at(element, f, depth + 1);
    if (tree.is_map())
        for (const Tree::Entry& entry : tree.entries()) visit_at(entry.value, f, depth + 1);
}

}  // namespace

Tree::Tree() = default;
Tree::~Tree() = default;
Tree::Tree(const Tree& other) = default;
Tree::Tree(Tree&& other) noexcept = default;
Tree& Tree::operator=(const Tree& other) = default;
Tree& Tree::operator=(Tree&& other) noexcept = default;

Tree::Tree(std::initializer_list<Entry> entries) : value_(Map(entries)) {
    check_keys("Tree", std::get<Map>(value_));
}

Tree::Tree(Tensor tensor) {
    if (tensor.defined()) value_ = std::move(tensor);
}
Tree::Tree(std::string text) : value_(std::move(text)) {}
Tree::Tree(std::string_view text) : value_(std::string(text)) {}
Tree::Tree(const char* text) : value_(std::string(text)) {}

Tree Tree::list() { return List(); }
Tree Tree::list(List elements) { return elements; }

Tree Tree::map() {
    Tree tree;
    tree.value_.emplace<Map>();
    return tree;
}

void Tree::set_flag(bool value) { value_ = value; }
void Tree::set_number(double value) { value_ = value; }
void Tree::set_integer(std::int64_t value) { value_ = value; }

void Tree::throw_beyond_int64(std::uint64_t value) {
    throw ValueError(str("Tree: an integer exceeds int64: ", value));
}

void Tree::throw_wrong_kind(const char* expected, const char* fix) const {
    std::string found = name_of(kind());
    if (is_map()) found += str(" with keys ", keys_of(entries()));
    if (is_string()) found += str(" (", in_quotes(string()), ")");
    throw ValueError(str("Tree: expected ", expected, ", got ", found, fix));
}

const Tensor& Tree::tensor() const {
    if (const Tensor* tensor = std::get_if<Tensor>(&value_)) return *tensor;
    throw_wrong_kind("a tensor");
}
Tensor& Tree::tensor() { return const_cast<Tensor&>(std::as_const(*this).tensor()); }

std::int64_t Tree::integer() const {
    if (const auto* value = std::get_if<std::int64_t>(&value_)) return *value;
    throw_wrong_kind("an integer");
}

double Tree::number() const {
    if (const auto* value = std::get_if<double>(&value_)) return *value;
    if (is_integer()) return static_cast<double>(integer());
    if (is_string()) {
        if (string() == tree::kNan) return std::numeric_limits<double>::quiet_NaN();
        if (string() == tree::kInfinity) return std::numeric_limits<double>::infinity();
        if (string() == tree::kMinusInfinity) return -std::numeric_limits<double>::infinity();
    }
    throw_wrong_kind("a number");
}

bool Tree::boolean() const {
    if (const bool* value = std::get_if<bool>(&value_)) return *value;
    throw_wrong_kind("a boolean");
}

const std::string& Tree::string() const {
    if (const auto* text = std::get_if<std::string>(&value_)) return *text;
    throw_wrong_kind("a string");
}

std::size_t Tree::size() const {
    if (is_list()) return elements().size();
    if (is_map()) return entries().size();
    throw_wrong_kind("a list or a map");
}

const Tree::List& Tree::elements() const& {
    if (const List* list = std::get_if<List>(&value_)) return *list;
    throw_wrong_kind("a list");
}
Tree::List Tree::elements() && { return std::move(elements()); }
Tree::List& Tree::elements() & { return const_cast<List&>(std::as_const(*this).elements()); }

const Tree::Map& Tree::entries() const& {
    if (const Map* map = std::get_if<Map>(&value_)) return *map;
    throw_wrong_kind("a map");
}
Tree::Map Tree::entries() && { return std::move(entries()); }
Tree::Map& Tree::entries() & { return const_cast<Map&>(std::as_const(*this).entries()); }

const Tree* Tree::find(std::string_view key) const {
    for (const Entry& entry : entries())
        if (entry.key == key) return &entry.value;
    return nullptr;
}

const Tree& Tree::operator[](std::string_view key) const {
    if (const Tree* value = find(key)) return *value;
    throw IndexError(str("Tree: no key ", in_quotes(key), "; existing keys: ", keys_of(entries())));
}
Tree& Tree::operator[](std::string_view key) try {
    return const_cast<Tree&>(std::as_const(*this)[key]);
} catch (const IndexError& error) {
    throw IndexError(str(error.what(), "; to add a key, call set(key, value)"));
}

const Tree& Tree::at(std::int64_t index) const {
    if (is_tensor()) throw_wrong_kind("a list", "; to index the tensor, write tree.tensor()[0]");
    const List& list = elements();
    if (index < 0 || index >= static_cast<std::int64_t>(list.size()))
        throw IndexError(
            str("Tree: index ", index, " is out of range for a list of size ", list.size()));
    return list[static_cast<std::size_t>(index)];
}

const Tensor& Tree::nth_tensor(std::size_t i, std::size_t count) const {
    const auto value = [&](std::size_t n) -> const Tree& {
        return is_map() ? entries()[n].value : elements()[n];
    };
    const std::size_t existing = is_map() || is_list() ? size() : 0;
    bool fits = existing == count;
    for (std::size_t n = 0; fits && n < count; ++n) fits = value(n).is_tensor();
    if (fits) return value(i).tensor();
    std::string found = name_of(kind());
    constexpr std::size_t kShown = 32;
    for (std::size_t n = 0; n < std::min(existing, kShown); ++n) {
        found += n == 0 ? " of " : ", ";
        if (is_map()) found += str(in_quotes(entries()[n].key), ": ");
        found += name_of(value(n).kind());
    }
    if (existing > kShown) found += str(" and ", existing - kShown, " more");
    throw ValueError(str("Tree: expected a list or map of ", count, " tensors, got ", found));
}

Tree& Tree::set(std::string_view key, Tree value) {
    if (is_null()) value_.emplace<Map>();
    for (Entry& entry : entries())
        if (entry.key == key) return entry.value = std::move(value);
    return entries().emplace_back(Entry{std::string(key), std::move(value)}).value;
}

void Tree::push_back(Tree element) {
    if (is_null()) value_.emplace<List>();
    elements().push_back(std::move(element));
}

Tree map_tensors(const Tree& tree, const std::function<Tree(const Tensor&)>& f) {
    return map_at(tree, f, 0);
}

void for_each_tensor(const Tree& tree, const std::function<void(const Tensor&)>& f) {
    visit_at(tree, f, 0);
}

}  // namespace axle
