#include "data/tables/json_row.h"

#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/tree/tree_builder.h"

// The namespace is renamed, because a program may use RapidJSON with other macros.
#define RAPIDJSON_NAMESPACE axle_rapidjson
#define RAPIDJSON_NO_SIZETYPEDEFINE
#ifdef __SSE2__
#define RAPIDJSON_SSE2
#endif
#include <rapidjson/rapidjson.h>
namespace axle_rapidjson {
using SizeType = std::size_t;
}
#include <rapidjson/reader.h>

namespace axle::data {
namespace {

namespace rapid = axle_rapidjson;

// Buffers that are longer are not kept for the next row.
constexpr std::size_t kMaxKeptBytes = 1 << 20;
// RapidJSON reads up to 16 bytes beyond the zero byte at the end of the text.
constexpr std::size_t kPadding = 17;

// Receives the events of RapidJSON. The functions return false for texts that from_json() must
// parse, because RapidJSON accepts texts that are invalid, or because they are rare.
class RowHandler {
  public:
    RowHandler(std::size_t keys, bool has_escapes)
        : builder_(SIZE_MAX), keys_(keys), has_escapes_(has_escapes) {}

    Tree take() { return builder_.take(); }

    // The names are those that RapidJSON calls.
    // NOLINTBEGIN(readability-identifier-naming)
    bool Null() { return add(Tree()); }
    bool Bool(bool value) { return add(value); }
    bool RawNumber(const char* digits, std::size_t length, bool) {
        const char* const end = digits + length;
        if (std::memchr(digits, '.', length) == nullptr &&
            std::memchr(digits, 'e', length) == nullptr &&
            std::memchr(digits, 'E', length) == nullptr) {
            std::int64_t integer = 0;
            return std::from_chars(digits, end, integer).ec == std::errc() && add(integer);
        }
        double number = 0;
        return std::from_chars(digits, end, number).ec == std::errc() && add(number);
    }
    bool String(const char* text, std::size_t length, bool) {
        if (has_lone_surrogate({text, length})) return false;
        builder_.add_string(std::string(text, length));
        return true;
    }
    bool StartObject() {
        builder_.open_map(std::exchange(keys_, 0));
        return true;
    }
    bool Key(const char* text, std::size_t length, bool) {
        if (has_lone_surrogate({text, length})) return false;
        builder_.add_key(std::string(text, length));
        return true;
    }
    bool EndObject(std::size_t) {
        builder_.close_map();
        return true;
    }
    bool StartArray() {
        builder_.open_list();
        return true;
    }
    bool EndArray(std::size_t) {
        builder_.close_list();
        return true;
    }

    // RapidJSON calls RawNumber() instead.
    bool Int(int) { return false; }
    bool Uint(unsigned) { return false; }
    bool Int64(std::int64_t) { return false; }
    bool Uint64(std::uint64_t) { return false; }
    bool Double(double) { return false; }
    // NOLINTEND(readability-identifier-naming)

  private:
    bool add(Tree value) {
        builder_.add(std::move(value));
        return true;
    }
    // RapidJSON 1.1 encodes an escaped low surrogate without a high one as ED B0 80 to ED BF BF.
    bool has_lone_surrogate(std::string_view text) const {
        if (!has_escapes_) return false;
        for (std::size_t at = 0; (at = text.find('\xed', at)) != std::string_view::npos; ++at)
            if (at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) >= 0xa0)
                return true;
        return false;
    }

    tree::TreeBuilder builder_;
    std::size_t keys_;  // of the next map, which is not known after the first map
    bool has_escapes_;  // whether the text has characters that are written as \uXXXX
};

}  // namespace

Tree parse_json_row(std::string_view line, std::size_t keys) {
    thread_local std::vector<char> buffer;
    buffer.resize(line.size() + kPadding);
    std::memcpy(buffer.data(), line.data(), line.size());
    std::memset(buffer.data() + line.size(), 0, kPadding);
    RowHandler handler(keys, line.find("\\u") != std::string_view::npos);
    rapid::Reader reader;
    rapid::InsituStringStream text(buffer.data());
    constexpr unsigned kFlags = rapid::kParseInsituFlag | rapid::kParseNumbersAsStringsFlag;
    // RapidJSON stops at a zero byte and ignores all text after it.
    const bool is_parsed =
        !reader.Parse<kFlags>(text, handler).IsError() && text.Tell() == line.size();
    if (buffer.size() > kMaxKeptBytes) std::vector<char>().swap(buffer);
    return is_parsed ? handler.take() : from_json(line);
}

}  // namespace axle::data
