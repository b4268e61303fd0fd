// JSON output and input of Trees, and their printed form.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/files/file.h"
#include "core/tree/large_integers.h"
#include "core/tree/tree.h"
#include "core/tree/tree_builder.h"
#include "core/tree/tree_checks.h"
#include "kernels/error.h"

namespace axle {
namespace {

using tree::check_depth;

// Returns the shortest text from which the same number can be parsed. A decimal point or an
// exponent distinguishes it from an integer.
std::string number_text(double value) {
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    std::string text(digits.data(), end);
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
}

// Returns JSON text with \u00NN for the control characters that JSON allows in strings: DEL and
// those from U+0080 to U+009F, which can change the state of a terminal.
std::string escape_controls(std::string_view json) {
    static constexpr char kHex[] = "0123456789abcdef";
    std::string out;
    for (std::size_t i = 0; i < json.size(); ++i) {
        const bool is_c1 = json[i] == '\xc2' && i + 1 < json.size() &&
                           static_cast<unsigned char>(json[i + 1]) < 0xa0;
        if (is_c1) ++i;
        const auto byte = static_cast<unsigned char>(json[i]);
        if (is_c1 || byte == 0x7f)
            out.append({'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]});
        else
            out += json[i];
    }
    return out;
}

// Writes a Tree as JSON. If `for_display` is true, also writes tensors and other values that JSON
// does not support.
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
            write_string(tree::kNan);
        } else {
            write_string(value > 0 ? tree::kInfinity : tree::kMinusInfinity);
        }
    }
    void write_string(const std::string& value) {
        using Json = nlohmann::json;
        const auto handler =
            for_display_ ? Json::error_handler_t::replace : Json::error_handler_t::strict;
        try {
            const std::string quoted = Json(value).dump(-1, ' ', false, handler);
            text += for_display_ ? escape_controls(quoted) : quoted;
        } catch (const Json::exception&) {
            throw ValueError("to_json: strings must be UTF-8: " + in_quotes(value));
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

// Receives the events of the JSON parser, which uses no recursion.
class Reader : public nlohmann::json_sax<nlohmann::json> {
  public:
    Reader(std::size_t max_memory, bool rounds_integers)
        : builder_(max_memory), rounds_integers_(rounds_integers) {}

    Tree take() { return builder_.take(); }

    bool null() override { return add(Tree()); }
    bool boolean(bool value) override { return add(value); }
    bool number_integer(number_integer_t value) override { return add(value); }
    bool number_unsigned(number_unsigned_t value) override {
        if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
            return add(static_cast<std::int64_t>(value));
        check_large(std::to_string(value));
        return add(static_cast<double>(value));
    }
    // `digits` contains the decimal point of the program's locale, so `value` is used instead.
    bool number_float(number_float_t value, const string_t& digits) override {
        if (digits.find_first_not_of("-0123456789") == std::string::npos) check_large(digits);
        return add(value);
    }
    bool string(string_t& value) override {
        builder_.add_string(std::move(value));
        return true;
    }
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t) override {
        builder_.open_map();
        return true;
    }
    bool start_array(std::size_t) override {
        builder_.open_list();
        return true;
    }
    bool key(string_t& name) override {
        builder_.add_key(std::move(name));
        return true;
    }
    bool end_object() override {
        builder_.close_map();
        return true;
    }
    bool end_array() override {
        builder_.close_list();
        return true;
    }
    bool parse_error(std::size_t, const std::string&,
                     const nlohmann::detail::exception& error) override {
        const std::string_view what = error.what();
        const std::size_t prefix = what.find("] ");  // after "[json.exception.parse_error.101"
        throw ValueError("from_json: " + printable(prefix == std::string_view::npos
                                                       ? what
                                                       : what.substr(prefix + 2)));
    }

  private:
    void check_large(const std::string& digits) const {
        if (!rounds_integers_)
            throw ValueError(str("from_json: an integer exceeds int64: ", printable(digits)));
    }
    bool add(Tree value) {
        builder_.add(std::move(value));
        return true;
    }

    tree::TreeBuilder builder_;
    bool rounds_integers_;  // whether integers beyond int64 are rounded
};

Tree parse(std::string_view text, std::size_t max_memory, bool rounds_integers) {
    // The parser would stop at a zero byte and ignore all text after it.
    if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)
        throw ValueError(str("from_json: unexpected zero byte at offset ", zero));
    Reader reader(max_memory, rounds_integers);
    nlohmann::json::sax_parse(text, &reader);
    return reader.take();
}

}  // namespace

std::string to_json(const Tree& tree, int indent) {
    Writer writer(indent, false);
    writer.write(tree);
    return std::move(writer.text);
}

Tree from_json(std::string_view text, std::size_t max_memory) {
    return parse(text, max_memory, false);
}

Tree from_json_with_large_integers(std::string_view text, std::size_t max_memory) {
    return parse(text, max_memory, true);
}

std::ostream& operator<<(std::ostream& out, const Tree& tree) {
    Writer writer(-1, true);
    writer.write(tree);
    return out << writer.text;
}
}  // namespace axle
