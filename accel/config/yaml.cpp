#include "accel/config/yaml.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_set>

#include <yaml-cpp/yaml.h>

#include "core/files/file.h"
#include "core/text/pattern.h"
#include "core/text/text.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

constexpr int kMaxDepth = 32;
constexpr int kMaxValues = 10000;
// The maximum length of a number. Longer text is not matched, because Pattern recurses once per
// character.
constexpr std::size_t kMaxNumber = 256;

enum class Plain { null, boolean, integer, real, special, text };

bool is_one_of(const std::string& text, std::initializer_list<const char*> words) {
    for (const char* word : words)
        if (text == word) return true;
    return false;
}

// Returns the YAML type of unquoted text.
Plain resolve(const std::string& text) {
    static const Pattern integer(
        "[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|"
        "[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+");
    static const Pattern real(
        "[-+]?[0-9][0-9_]*\\.[0-9_]*([eE][-+][0-9]+)?|\\.[0-9][0-9_]*([eE][-+][0-9]+)?|"
        "[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\\.[0-9_]*|[-+]?\\.(inf|Inf|INF)|\\.(nan|NaN|NAN)");
    static const Pattern date(
        "[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt]|[ \t]+).*");
    if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return Plain::null;
    if (is_one_of(text, {"yes", "Yes", "YES", "no", "No", "NO", "true", "True", "TRUE", "on", "On",
                         "ON", "false", "False", "FALSE", "off", "Off", "OFF"}))
        return Plain::boolean;
    if (text.size() > kMaxNumber) return Plain::text;
    if (integer.matches(text)) return Plain::integer;
    if (real.matches(text)) return Plain::real;
    if (is_one_of(text, {"<<", "="}) || date.matches(text)) return Plain::special;
    return Plain::text;
}

// Parses a sexagesimal number of YAML 1.1: "1:30" is 90.
template <class T, class F>
T sixty_based(const std::string& digits, F&& parse) {
    T value = 0;
    for (std::size_t begin = 0; begin <= digits.size();) {
        const std::size_t end = std::min(digits.find(':', begin), digits.size());
        value = value * 60 + parse(digits.substr(begin, end - begin));
        begin = end + 1;
    }
    return value;
}

class Reader {
  public:
    explicit Reader(const std::string& name) : name_(name) {}

    Tree read(const YAML::Node& node, int depth = 0) {
        if (depth > kMaxDepth) fail(str("is nested deeper than ", kMaxDepth, " levels"));
        if (++values_ > kMaxValues) fail(str("has more than ", kMaxValues, " values"));
        if (node.IsNull()) return {};
        if (node.IsScalar()) return scalar(node);
        check_tag(node, node.IsSequence() ? "tag:yaml.org,2002:seq" : "tag:yaml.org,2002:map");
        if (node.IsSequence()) {
            Tree list = Tree::list();
            for (const YAML::Node& element : node) list.push_back(read(element, depth + 1));
            return list;
        }
        Tree map = Tree::map();
        std::unordered_set<std::string> keys;
        for (const auto& entry : node) {
            if (!entry.first.IsScalar())
                fail(str("line ", entry.first.Mark().line + 1,
                         ": a key must be plain text, not null, a list or a map"));
            const std::string& key = utf8(entry.first.Scalar());
            if (!keys.insert(key).second) fail("the key " + in_quotes(key) + " is repeated");
            map.entries().push_back({key, read(entry.second, depth + 1)});
        }
        return map;
    }
    [[noreturn]] void fail(const std::string& reason) const {
        throw ValueError(printable(name_) + ": " + reason);
    }

  private:
    void check_tag(const YAML::Node& node, const char* known) const {
        if (!is_one_of(node.Tag(), {"", "?", "!", known}))
            fail("the tag " + in_quotes(node.Tag()) + " is not allowed; remove it");
    }
    const std::string& utf8(const std::string& text) const {
        if (replace_invalid_utf8(text) != text) fail("must be UTF-8 text: " + in_quotes(text));
        return text;
    }
    Tree scalar(const YAML::Node& node) const {
        const std::string& text = utf8(node.Scalar());
        if (node.Tag() != "?") {
            check_tag(node, "tag:yaml.org,2002:str");
            return text;
        }
        switch (resolve(text)) {
            case Plain::null:
                return {};
            case Plain::boolean:
                return is_one_of(text,
                                 {"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"});
            case Plain::integer:
                return integer(text);
            case Plain::real:
                return real(text);
            default:
                return text;
        }
    }
    Tree integer(std::string digits) const {
        const std::string whole = digits;
        std::erase(digits, '_');
        const bool negative = digits[0] == '-';
        if (negative || digits[0] == '+') digits.erase(0, 1);
        int base = 10;
        if (digits.starts_with("0x"))
            base = 16, digits.erase(0, 2);
        else if (digits.starts_with("0b"))
            base = 2, digits.erase(0, 2);
        else if (digits.size() > 1 && digits[0] == '0')
            base = 8, digits.erase(0, 1);
        const auto parse = [&](const std::string& part) {
            std::int64_t value = 0;
            const auto end = part.data() + part.size();
            const auto [at, error] = std::from_chars(part.data(), end, value, base);
            if (error != std::errc() || at != end || value > (std::int64_t{1} << 53))
                fail("an integer must be from -2^53 to 2^53: " + in_quotes(whole));
            return value;
        };
        if (digits.size() > 40) fail("an integer must have at most 40 digits: " + in_quotes(whole));
        const bool sixty = digits.find(':') != std::string::npos;
        if (!sixty) return negative ? -parse(digits) : parse(digits);
        const double value = sixty_based<double>(digits, parse);
        if (value > 0x1p53) fail("an integer must be from -2^53 to 2^53: " + in_quotes(whole));
        return static_cast<std::int64_t>(negative ? -value : value);
    }
    Tree real(std::string digits) const {
        std::erase(digits, '_');
        const bool negative = digits[0] == '-';
        if (negative || digits[0] == '+') digits.erase(0, 1);
        const double sign = negative ? -1 : 1;
        if (is_one_of(digits, {".inf", ".Inf", ".INF"}))
            return sign * std::numeric_limits<double>::infinity();
        if (is_one_of(digits, {".nan", ".NaN", ".NAN"}))
            return std::numeric_limits<double>::quiet_NaN();
        const auto parse = [](const std::string& part) {
            double value = 0;
            std::from_chars(part.data(), part.data() + part.size(), value);
            return value;
        };
        return sign * sixty_based<double>(digits, parse);
    }

    std::string name_;
    int values_ = 0;
};

// Formats a number such as 0.001, 1.0e-05 or 3.0, with the digits of Python's repr and the decimal
// point of PyYAML.
std::string real_text(double value) {
    if (std::isnan(value)) return ".nan";
    if (std::isinf(value)) return value < 0 ? "-.inf" : ".inf";
    char digits[64];
    const auto write = [&](std::chars_format format) {
        return std::string(digits, std::to_chars(digits, std::end(digits), value, format).ptr);
    };
    std::string text = write(std::chars_format::scientific);
    const std::size_t e = text.find('e');
    const int exponent = std::stoi(text.substr(e + 1));
    if (exponent >= -4 && exponent < 16) {
        text = write(std::chars_format::fixed);
        return text.find('.') == std::string::npos ? text + ".0" : text;
    }
    return text.find('.') == std::string::npos ? text.insert(e, ".0") : text;
}

// Removes the first character of UTF-8 text and returns its code point.
std::uint32_t next_character(std::string_view& text) {
    const auto first = static_cast<unsigned char>(text[0]);
    const int length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    std::uint32_t code = length == 1 ? first : first & (0xffu >> (length + 1));
    for (int i = 1; i < length; ++i)
        code = code << 6 | (static_cast<unsigned char>(text[static_cast<std::size_t>(i)]) & 0x3fu);
    text.remove_prefix(static_cast<std::size_t>(length));
    return code;
}

bool is_printable_ascii(std::uint32_t code) { return code >= 0x20 && code < 0x7f; }

std::string double_quoted(std::string_view text) {
    std::string out = "\"";
    const auto escape = [&](char kind, std::uint32_t code, int digits) {
        out += str('\\', kind);
        while (digits-- > 0) out += "0123456789ABCDEF"[code >> (4 * digits) & 15];
    };
    while (!text.empty()) {
        const std::uint32_t code = next_character(text);
        if (code == '\t' || code == '\n' || code == '\r')
            out += code == '\t' ? "\\t" : code == '\n' ? "\\n" : "\\r";
        else if (code == '"' || code == '\\')
            out += str('\\', static_cast<char>(code));
        else if (is_printable_ascii(code))
            out += static_cast<char>(code);
        else if (code < 0x100)
            escape('x', code, 2);
        else if (code < 0x10000)
            escape('u', code, 4);
        else
            escape('U', code, 8);
    }
    return out + '"';
}

std::string text_of(const std::string& text) {
    if (replace_invalid_utf8(text) != text)
        throw ValueError(str("to_yaml: text must be UTF-8: ", in_quotes(text)));
    const bool printable = std::all_of(text.begin(), text.end(), [](char c) {
        return is_printable_ascii(static_cast<unsigned char>(c));
    });
    if (!printable) return double_quoted(text);
    const std::string indicators = "-?:,[]{}#&*!|>'\"%@`";
    const bool inside = text.find(": ") != std::string::npos || text.ends_with(':') ||
                        text.find(" #") != std::string::npos;
    const bool opens = text.find_first_of(indicators) == 0 &&
                       !(text.size() > 1 && std::string("-?:").find(text[0]) != std::string::npos &&
                         text[1] != ' ');
    const bool ends = text.empty() || text.front() == ' ' || text.back() == ' ';
    const bool document = text.starts_with("---") || text.starts_with("...");
    if (!inside && !opens && !ends && !document && resolve(text) == Plain::text) return text;
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
    return out + "'";
}

void write(std::string& out, const Tree& value, int indent, bool in_list);

void write_map(std::string& out, const Tree& map, int indent, bool in_list) {
    bool first = in_list;
    for (const auto& [key, value] : map.entries()) {
        if (!first) out.append(static_cast<std::size_t>(indent), ' ');
        first = false;
        out += text_of(key) + ":";
        write(out, value, indent, false);
    }
}

// Writes a value that follows "key:" or "-", and the end of the line.
void write(std::string& out, const Tree& value, int indent, bool in_list) {
    if (value.is_map() && !value.empty()) {
        out += in_list ? " " : "\n";
        return write_map(out, value, indent + 2, in_list);
    }
    if (value.is_list() && !value.empty()) {
        if (!in_list) out += "\n";
        const int at = in_list ? indent + 2 : indent;
        bool first = in_list;
        for (const Tree& element : value.elements()) {
            out += first ? " " : std::string(static_cast<std::size_t>(at), ' ');
            first = false;
            out += "-";
            write(out, element, at, true);
        }
        return;
    }
    out += ' ';
    switch (value.kind()) {
        case Tree::Kind::null:
            out += "null";
            break;
        case Tree::Kind::flag:
            out += value.boolean() ? "true" : "false";
            break;
        case Tree::Kind::integer:
            out += str(value.integer());
            break;
        case Tree::Kind::number:
            out += real_text(value.number());
            break;
        case Tree::Kind::string:
            out += text_of(value.string());
            break;
        case Tree::Kind::list:
            out += "[]";
            break;
        case Tree::Kind::map:
            out += "{}";
            break;
        case Tree::Kind::tensor:
            throw ValueError(
                str("to_yaml: tensors can't be written as YAML: ", value.tensor().dtype(), ' ',
                    value.tensor().shape(), "; convert them to numbers first"));
    }
    out += '\n';
}

}  // namespace

Tree parse_yaml(std::string_view text, const std::string& name) {
    Reader reader(name);
    if (std::ssize(text) > kMaxYaml)
        reader.fail(str("has ", text.size(), " bytes, more than the maximum of ", kMaxYaml));
    YAML::Node root;
    try {
        root = YAML::Load(std::string(text));
    } catch (const YAML::Exception& error) {
        reader.fail("not YAML: " + printable(error.what()));
    }
    return reader.read(root);
}

std::string to_yaml(const Tree& map) {
    std::string out;
    write_map(out, map, 0, false);
    return out;
}

}  // namespace axle::accel
