#include "core/tree/tree.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "core/files/file.h"
#include "core/tree/tree_utils.h"

namespace axle {
namespace {

constexpr const char* kNan = "NaN";
constexpr const char* kInfinity = "Infinity";
constexpr const char* kMinusInfinity = "-Infinity";

void check_depth(const char* op, int depth) {
    if (depth > kMaxTreeDepth)
        throw ValueError(str(op, ": the tree is nested deeper than ", kMaxTreeDepth, " levels"));
}

// Takes n log n time, so that a file with a million keys is not an attack.
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

// Returns the shortest text that round-trips, with a mark that distinguishes it from an integer.
std::string number_text(double value) {
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    std::string text(digits.data(), end);
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
}

// Writes JSON. With `for_display`, also writes tensors and other values that JSON does not support.
class Writer {
  public:
    Writer(int indent, bool for_display) : indent_(indent), for_display_(for_display) {}

    std::string text;

    void write(const Tree& tree, int depth = 0) {
        check_depth("to_json", depth);
        switch (tree.kind()) {
            case Tree::Kind::null:
                text += "null";
                return;
            case Tree::Kind::tensor:
                return write_tensor(tree.tensor());
            case Tree::Kind::integer:
                text += std::to_string(tree.integer());
                return;
            case Tree::Kind::number:
                return write_number(tree.number());
            case Tree::Kind::flag:
                text += tree.boolean() ? "true" : "false";
                return;
            case Tree::Kind::string:
                return write_string(tree.string());
            case Tree::Kind::list:
                return write_list(tree, depth);
            case Tree::Kind::map:
                return write_map(tree, depth);
        }
    }

  private:
    void write_tensor(const Tensor& tensor) {
        if (!for_display_)
            throw ValueError(str("to_json: tensors cannot be written as JSON: ", tensor.dtype(),
                                 " ", tensor.shape(), "; save tensors to safetensors"));
        text += str(tensor.dtype(), " ", tensor.shape());
    }
    void write_number(double value) {
        if (std::isfinite(value) || for_display_) {
            text += number_text(value);
        } else if (std::isnan(value)) {
            write_string(kNan);
        } else {
            write_string(value > 0 ? kInfinity : kMinusInfinity);
        }
    }
    void write_string(const std::string& value) {
        using Json = nlohmann::json;
        const auto handler =
            for_display_ ? Json::error_handler_t::replace : Json::error_handler_t::strict;
        try {
            text += Json(value).dump(-1, ' ', false, handler);
        } catch (const Json::exception&) {
            throw ValueError("to_json: a string is not UTF-8: " + in_quotes(value));
        }
    }
    void write_list(const Tree& tree, int depth) {
        text += '[';
        bool first = true;
        for (const Tree& element : tree.elements()) {
            separate(first, depth + 1);
            write(element, depth + 1);
        }
        close(first, depth, ']');
    }
    void write_map(const Tree& tree, int depth) {
        text += '{';
        bool first = true;
        for (const auto& [key, value] : tree.entries()) {
            separate(first, depth + 1);
            write_string(key);
            text += ": ";
            write(value, depth + 1);
        }
        close(first, depth, '}');
    }
    void separate(bool& first, int depth) {
        if (!first) text += indent_ < 0 ? ", " : ",";
        first = false;
        new_line(depth);
    }
    void close(bool empty, int depth, char bracket) {
        if (!empty) new_line(depth);
        text += bracket;
    }
    void new_line(int depth) {
        if (indent_ < 0) return;
        text += '\n';
        for (int i = 0; i < depth * indent_; ++i) text += ' ';
    }

    int indent_;
    bool for_display_;
};

// Receives the events of the JSON parser. Neither the parser nor this class recurses: open lists
// and maps are in a vector, and each moves into its parent when it closes.
class Reader : public nlohmann::json_sax<nlohmann::json> {
  public:
    Tree root;

    bool null() override { return add(Tree()); }
    bool boolean(bool value) override { return add(value); }
    bool number_integer(number_integer_t value) override { return add(value); }
    bool number_unsigned(number_unsigned_t value) override {
        if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
            throw ValueError(str("from_json: an integer exceeds 64 bits: ", value));
        return add(static_cast<std::int64_t>(value));
    }
    // The text uses the decimal point of the program's locale.
    bool number_float(number_float_t value, const string_t& digits) override {
        if (digits.find_first_not_of("-0123456789") == std::string::npos)
            throw ValueError(str("from_json: an integer exceeds 64 bits: ", printable(digits)));
        return add(value);
    }
    bool string(string_t& value) override { return add(std::move(value)); }
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t) override { return open(Tree::map()); }
    bool start_array(std::size_t) override { return open(Tree::list()); }
    bool key(string_t& name) override {
        open_.back().entries().push_back({std::move(name), Tree()});
        return true;
    }
    bool end_object() override {
        check_keys("from_json", open_.back().entries());
        return close();
    }
    bool end_array() override { return close(); }
    bool parse_error(std::size_t, const std::string&,
                     const nlohmann::detail::exception& error) override {
        const std::string_view what = error.what();
        const std::size_t prefix = what.find("] ");  // "[json.exception.parse_error.101] "
        throw ValueError("from_json: " + printable(prefix == std::string_view::npos
                                                       ? what
                                                       : what.substr(prefix + 2)));
    }

  private:
    bool open(Tree container) {
        open_.push_back(std::move(container));
        check_depth("from_json", static_cast<int>(open_.size()));
        return true;
    }
    bool close() {
        Tree closed = std::move(open_.back());
        open_.pop_back();
        return add(std::move(closed));
    }
    bool add(Tree value) {
        if (open_.empty()) {
            root = std::move(value);
        } else if (open_.back().is_list()) {
            open_.back().elements().push_back(std::move(value));
        } else {
            open_.back().entries().back().value = std::move(value);
        }
        return true;
    }

    std::vector<Tree> open_;
};

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

void Tree::throw_beyond_int64(std::uint64_t value) {
    throw ValueError(str("Tree: an integer exceeds 64 bits: ", value));
}

void Tree::throw_wrong_kind(const char* wanted) const {
    std::string found = name_of(kind());
    if (is_map()) found += str(" with keys ", keys_of(entries()));
    if (is_string()) found += str(" (", in_quotes(string()), ")");
    throw ValueError(str("Tree: expected ", wanted, ", got ", found));
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
        if (string() == kNan) return std::numeric_limits<double>::quiet_NaN();
        if (string() == kInfinity) return std::numeric_limits<double>::infinity();
        if (string() == kMinusInfinity) return -std::numeric_limits<double>::infinity();
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

const Tree::List& Tree::elements() const {
    if (const List* list = std::get_if<List>(&value_)) return *list;
    throw_wrong_kind("a list");
}
Tree::List& Tree::elements() { return const_cast<List&>(std::as_const(*this).elements()); }

const Tree::Map& Tree::entries() const {
    if (const Map* map = std::get_if<Map>(&value_)) return *map;
    throw_wrong_kind("a map");
}
Tree::Map& Tree::entries() { return const_cast<Map&>(std::as_const(*this).entries()); }

const Tree* Tree::find(std::string_view key) const {
    for (const Entry& entry : entries())
        if (entry.key == key) return &entry.value;
    return nullptr;
}

const Tree& Tree::operator[](std::string_view key) const {
    if (const Tree* value = find(key)) return *value;
    throw IndexError(str("Tree: no key ", in_quotes(key), "; existing keys: ", keys_of(entries())));
}
Tree& Tree::operator[](std::string_view key) {
    return const_cast<Tree&>(std::as_const(*this)[key]);
}

const Tree& Tree::at(std::int64_t index) const {
    const List& list = elements();
    if (index < 0 || index >= static_cast<std::int64_t>(list.size()))
        throw IndexError(
            str("Tree: index ", index, " out of range for a list of size ", list.size()));
    return list[static_cast<std::size_t>(index)];
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

std::string to_json(const Tree& tree, int indent) {
    Writer writer(indent, false);
    writer.write(tree);
    return std::move(writer.text);
}

Tree from_json(std::string_view text) {
    // The parser would stop at a zero byte and ignore the rest.
    if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)
        throw ValueError(str("from_json: unexpected zero byte at offset ", zero));
    Reader reader;
    nlohmann::json::sax_parse(text, &reader);
    return std::move(reader.root);
}

std::ostream& operator<<(std::ostream& out, const Tree& tree) {
    Writer writer(-1, true);
    writer.write(tree);
    return out << writer.text;
}

}  // namespace axle
