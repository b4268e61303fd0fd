#include "data/files/npy_header.h"

#include <optional>
#include <string_view>
#include <utility>

#include "core/files/file.h"
#include "data/files/bytes.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kVersionOffset = 6, kLengthOffset = 8;
// The maximum number of bytes of a header. By default, NumPy does not read more than 10,000 bytes.
constexpr std::size_t kMaxHeader = 1 << 16;

constexpr std::pair<std::string_view, DType> kDTypes[] = {
    {"b1", DType::boolean}, {"i1", DType::i8},  {"i2", DType::i16}, {"i4", DType::i32},
    {"i8", DType::i64},     {"u1", DType::u8},  {"u2", DType::u16}, {"u4", DType::u32},
    {"u8", DType::u64},     {"f2", DType::f16}, {"f4", DType::f32}, {"f8", DType::f64},
    {"c8", DType::c64},
};

// Parses the dict literal of the header, which must contain exactly the keys descr, fortran_order
// and shape, each once. `start` is the offset of the literal in the file, for error messages.
class DictParser {
  public:
    DictParser(std::string_view text, std::size_t start, const std::string& name)
        : text_(text), start_(start), name_(name) {}

    NpyHeader parse() {
        expect('{');
        while (!accept('}')) {
            parse_entry();
            if (accept(',')) continue;
            expect('}');
            break;
        }
        skip_spaces();
        if (at_ != text_.size()) throw_here("unexpected text after the header's dict");
        if (fields_seen_ != kAll) throw_here("descr, fortran_order or shape is missing");
        return header_;
    }

  private:
    enum Field { kDescr = 1, kOrder = 2, kShape = 4, kAll = 7 };

    [[noreturn]] void throw_here(const std::string& what) const {
        throw_at_byte(name_, static_cast<std::int64_t>(start_ + at_), what);
    }
    char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    void skip_spaces() {
        while (peek() == ' ' || peek() == '\t' || peek() == '\n') ++at_;
    }
    bool accept(char c) {
        skip_spaces();
        if (peek() != c || at_ == text_.size()) return false;
        ++at_;
        return true;
    }
    void expect(char c) {
        if (!accept(c)) throw_here(str("expected '", c, "' in the header"));
    }
    bool accept_word(std::string_view word) {
        skip_spaces();
        if (!text_.substr(at_).starts_with(word)) return false;
        at_ += word.size();
        return true;
    }

    void parse_entry();
    std::string_view parse_quoted();
    void parse_descr();
    std::int64_t parse_size();
    Shape parse_shape();

    std::string_view text_;
    std::size_t start_;
    const std::string& name_;
    std::size_t at_ = 0;
    int fields_seen_ = 0;
    NpyHeader header_;
};

void DictParser::parse_entry() {
    const std::string_view key = parse_quoted();
    const int field = key == "descr"           ? kDescr
                      : key == "fortran_order" ? kOrder
                      : key == "shape"         ? kShape
                                               : 0;
    if (field == 0)
        throw_here("unknown key, expected descr, fortran_order or shape: " + in_quotes(key));
    if ((fields_seen_ & field) != 0) throw_here("duplicate key: " + in_quotes(key));
    fields_seen_ |= field;
    expect(':');
    if (field == kDescr) {
        parse_descr();
    } else if (field == kShape) {
        header_.shape = parse_shape();
    } else {
        header_.fortran_order = accept_word("True");
        if (!header_.fortran_order && !accept_word("False"))
            throw_here("fortran_order must be True or False");
    }
}

// Parses a quoted string. Escape sequences are not decoded, because valid keys and dtypes contain
// none.
std::string_view DictParser::parse_quoted() {
    skip_spaces();
    const char quote = peek();
    if (quote != '\'' && quote != '"') throw_here("expected a string in the header");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) throw_here("unterminated string in the header");
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return inside;
}

void DictParser::parse_descr() {
    skip_spaces();
    if (peek() == '[') throw_here("structured dtypes are not supported");
    const std::size_t start = at_;
    const std::string_view text = parse_quoted();
    at_ = start;  // error messages must contain this offset
    const char order = text.empty() ? '\0' : text[0];
    for (const auto& [code, dtype] : kDTypes) {
        if (text.empty() || text.substr(1) != code) continue;
        const bool known_order =
            order == '<' || order == '>' || order == '=' || (order == '|' && size_of(dtype) == 1);
        if (!known_order) break;
        header_.dtype = dtype;
        header_.big_endian = order == '>';
        at_ += text.size() + 2;
        return;
    }
    if (text.substr(0, 2) == "|O")
        throw_here("pickled Python objects are not supported: they can run code");
    throw_here(
        "unsupported dtype, expected a boolean, an integer, a float or complex64, such as '<f4': " +
        in_quotes(text));
}

std::int64_t DictParser::parse_size() {
    skip_spaces();
    const std::size_t start = at_;
    std::int64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, peek() - '0', &value))
            throw_here("a size overflows int64");
    if (at_ == start) throw_here("expected a non-negative integer in the shape");
    if (peek() == 'L') ++at_;  // a suffix that Python 2 writes
    return value;
}

Shape DictParser::parse_shape() {
    expect('(');
    Shape sizes;
    while (!accept(')')) {
        if (sizes.size() == kMaxDims) throw_here(str("more than ", kMaxDims, " dimensions"));
        sizes.push_back(parse_size());
        if (accept(',')) continue;
        if (sizes.size() == 1) throw_here("a tuple with one element needs a comma");
        expect(')');
        break;
    }
    return sizes;
}

std::optional<std::string_view> code_of(DType dtype) {
    for (const auto& [code, known] : kDTypes)
        if (known == dtype) return code;
    return std::nullopt;
}

}  // namespace

NpyHeader read_npy_header(std::span<const std::byte> bytes, const std::string& name) {
    const auto byte = [&](std::size_t i) { return std::to_integer<std::size_t>(bytes[i]); };
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const auto throw_truncated = [&] {
        throw_at_byte(name, std::ssize(bytes), "the header is truncated");
    };
    if (kMagic.starts_with(text)) throw_truncated();
    if (!text.starts_with(kMagic))
        throw_at_byte(name, 0, "not an .npy file: it does not start with \\x93NUMPY");
    if (bytes.size() < kLengthOffset) throw_truncated();
    const std::size_t version = byte(kVersionOffset);
    if (version < 1 || version > 3 || byte(kVersionOffset + 1) != 0)
        throw_at_byte(name, kVersionOffset,
                      str("the format version must be 1.0, 2.0 or 3.0: it is ", version, '.',
                          byte(kVersionOffset + 1)));
    const std::size_t width = version == 1 ? 2 : 4;
    if (bytes.size() < kLengthOffset + width) throw_truncated();
    std::size_t length = 0;
    for (std::size_t i = 0; i < width; ++i) length |= byte(kLengthOffset + i) << (8 * i);
    if (length > kMaxHeader)
        throw_at_byte(
            name, kLengthOffset,
            str("the header has ", length, " bytes, more than the maximum of ", kMaxHeader));
    const std::size_t start = kLengthOffset + width;
    if (bytes.size() - start < length) throw_truncated();
    NpyHeader header = DictParser(text.substr(start, length), start, name).parse();
    header.bytes = start + length;
    return header;
}

std::string write_npy_header(DType dtype, const Shape& shape) {
    const std::optional<std::string_view> code = code_of(dtype);
    if (!code)
        throw DTypeError(str("save_npy: NumPy does not support the dtype ", dtype,
                             "; convert the tensor with .to(f32)"));
    std::string dict = "{'descr': '";
    dict += size_of(dtype) == 1 ? '|' : '<';
    dict += *code;
    dict += "', 'fortran_order': False, 'shape': (";
    for (int d = 0; d < shape.size(); ++d)
        dict += (d == 0 ? "" : " ") + std::to_string(shape[d]) + ",";
    if (shape.size() > 1) dict.pop_back();
    dict += "), }";
    // Like NumPy, reserves spaces so that the first size can grow to 21 digits without moving the
    // elements.
    if (!shape.empty()) dict.append(21 - std::to_string(shape[0]).size(), ' ');
    constexpr std::size_t kAlignment = 64, kStart = kLengthOffset + 2;
    const std::size_t unpadded = kStart + dict.size() + 1;
    dict.append(kAlignment - unpadded % kAlignment, ' ');
    dict += '\n';
    std::string header(kMagic);
    header += '\1';
    header += '\0';
    header += static_cast<char>(dict.size() & 255);
    header += static_cast<char>(dict.size() >> 8);
    return header + dict;
}

}  // namespace axle::data
