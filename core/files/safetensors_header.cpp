// Reads and writes the text of a safetensors header. The reader handles the events of a JSON parser
// and accepts only headers in exactly this format.
#include "core/files/safetensors_header.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/files/file.h"

namespace axle {
namespace {

using Entry = SafetensorsFile::Entry;

constexpr std::size_t kMaxHeader = kMaxSafetensorsHeader;
constexpr const char* kMetadataKey = "__metadata__";
// A lower bound of the bytes of an entry. The shortest entries have the form
// "":{"dtype":"U8","shape":[],"data_offsets":[0,0]}.
constexpr std::size_t kShortestEntry = 48;

// The names of dtypes, in the order of the reference library. save_safetensors() and the reference
// library write tensors in the reverse of this order.
constexpr std::pair<const char*, DType> kDTypes[] = {
    {"BOOL", DType::boolean},    {"U8", DType::u8},           {"I8", DType::i8},
    {"F8_E5M2", DType::f8_e5m2}, {"F8_E4M3", DType::f8_e4m3}, {"F8_E8M0", DType::f8_e8m0},
    {"I16", DType::i16},         {"U16", DType::u16},         {"F16", DType::f16},
    {"BF16", DType::bf16},       {"I32", DType::i32},         {"U32", DType::u32},
    {"F32", DType::f32},         {"C64", DType::c64},         {"F64", DType::f64},
    {"I64", DType::i64},         {"U64", DType::u64},
};

// Receives the events of the JSON parser. A method that returns false stops the parser and sets
// `reason` to the error.
class HeaderReader {
  public:
    // Reserves memory for at most as many entries as the text has braces, because a vector that
    // grows needs three times the memory.
    explicit HeaderReader(const std::string& text) {
        entries.reserve(std::min({static_cast<std::size_t>(std::ranges::count(text, '{')),
                                  text.size() / kShortestEntry, kMaxSafetensorsTensors}));
    }

    bool null() { return unexpected("null"); }
    bool boolean(bool) { return unexpected("a boolean"); }
    bool binary(nlohmann::json::binary_t&) { return unexpected("binary data"); }
    bool number_integer(std::int64_t x) { return not_a_count(std::to_string(x)); }
    bool number_float(double, const std::string& text) { return not_a_count(text); }
    bool number_unsigned(std::uint64_t x);
    bool string(std::string& text);
    bool key(std::string& text);
    bool start_object(std::size_t);
    bool end_object();
    bool start_array(std::size_t);
    bool end_array();
    template <class Exception>
    bool parse_error(std::size_t position, const std::string&, const Exception&) {
        return refuse(str("the header is not valid JSON at byte ", position));
    }

    std::string reason;
    std::vector<Entry> entries;
    Metadata metadata;

  private:
    enum class At { start, names, metadata, tensor, shape, offsets, end };
    enum Field { kNoField = 0, kDType = 1, kShape = 2, kOffsets = 4, kAll = 7 };

    bool refuse(std::string why) {
        reason = std::move(why);
        return false;
    }
    bool unexpected(const char* what) {
        if (at_ == At::names && !in_metadata_)
            return refuse(str(tensor(), what, " where an object is expected"));
        if (at_ == At::metadata || in_metadata_)
            return refuse(str("__metadata__ can contain only text: ", what));
        if (at_ == At::start) return refuse("the header is not an object");
        return refuse(str(tensor(), what, " is not allowed here"));
    }
    bool not_a_count(const std::string& text) {
        if (at_ != At::shape && at_ != At::offsets) return unexpected("a number");
        return refuse(str(tensor(), "not an integer in [0, 2^63): ", printable(text)));
    }
    std::string tensor() const { return str("tensor ", in_quotes(entry_.name), ": "); }
    bool set_dtype(const std::string& name);

    At at_ = At::start;
    bool in_metadata_ = false;  // whether the parser is inside "__metadata__"
    bool has_metadata_ = false;
    Entry entry_;
    int fields_seen_ = kNoField;  // has one bit for each Field
    Field field_ = kNoField;      // the field of the next value
    int offsets_ = 0;             // number of values read
    std::string text_key_;
};

bool HeaderReader::number_unsigned(std::uint64_t x) {
    if (x > INT64_MAX) return not_a_count(std::to_string(x));
    const auto value = static_cast<std::int64_t>(x);
    if (at_ == At::shape) {
        if (entry_.shape.size() == kMaxDims)
            return refuse(str(tensor(), "more than ", kMaxDims, " dimensions"));
        entry_.shape.push_back(value);
        return true;
    }
    if (at_ != At::offsets) return unexpected("a number");
    if (offsets_ == 2) return refuse(str(tensor(), "more than two data_offsets"));
    (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    return true;
}

bool HeaderReader::set_dtype(const std::string& name) {
    if (const std::optional<DType> dtype = dtype_named(name)) return entry_.dtype = *dtype, true;
    if (name == "F4" || name == "F6_E2M3" || name == "F6_E3M2")
        return refuse(str(tensor(), "elements smaller than a byte are not supported: ", name));
    return refuse(str(tensor(), "unknown dtype: ", printable(name)));
}

bool HeaderReader::string(std::string& text) {
    if (at_ == At::metadata) {
        const auto [entry, is_new] = metadata.try_emplace(std::move(text_key_), std::move(text));
        if (!is_new)
            return refuse(str("__metadata__ has a duplicate key: ", in_quotes(entry->first)));
        if (metadata.size() > kMaxSafetensorsMetadata)
            return refuse(str("__metadata__ has more than ", kMaxSafetensorsMetadata, " keys"));
        return true;
    }
    if (at_ == At::tensor && field_ == kDType) return field_ = kNoField, set_dtype(text);
    return unexpected("text");
}

bool HeaderReader::key(std::string& text) {
    if (at_ == At::metadata) return text_key_ = std::move(text), true;
    if (at_ == At::names) {
        in_metadata_ = text == kMetadataKey;
        if (in_metadata_ && std::exchange(has_metadata_, true))
            return refuse("duplicate key: '__metadata__'");
        entry_ = {};
        entry_.name = std::move(text);
        return true;
    }
    field_ = text == "dtype"          ? kDType
             : text == "shape"        ? kShape
             : text == "data_offsets" ? kOffsets
                                      : kNoField;
    if (field_ == kNoField)
        return refuse(str(
            tensor(), "unknown field, expected dtype, shape or data_offsets: ", in_quotes(text)));
    if (fields_seen_ & field_) return refuse(str(tensor(), "duplicate field: ", text));
    fields_seen_ |= field_;
    return true;
}

bool HeaderReader::start_object(std::size_t) {
    if (at_ == At::start) return at_ = At::names, true;
    if (at_ != At::names) return unexpected("an object");
    at_ = std::exchange(in_metadata_, false) ? At::metadata : At::tensor;
    fields_seen_ = field_ = kNoField;
    offsets_ = 0;
    return true;
}

bool HeaderReader::end_object() {
    if (at_ == At::names) return at_ = At::end, true;
    if (std::exchange(at_, At::names) == At::metadata) return true;
    if (fields_seen_ != kAll)
        return refuse(str(tensor(), "dtype, shape or data_offsets is missing"));
    if (entries.size() == kMaxSafetensorsTensors)
        return refuse(str("the header has more than ", kMaxSafetensorsTensors, " tensors"));
    entries.push_back(std::move(entry_));
    return true;
}

bool HeaderReader::start_array(std::size_t) {
    if (at_ != At::tensor || (field_ != kShape && field_ != kOffsets)) return unexpected("a list");
    at_ = std::exchange(field_, kNoField) == kShape ? At::shape : At::offsets;
    return true;
}

bool HeaderReader::end_array() {
    if (std::exchange(at_, At::tensor) == At::offsets && offsets_ != 2)
        return refuse(str(tensor(), "fewer than two data_offsets"));
    return true;
}

void check_header_length(std::size_t length) {
    if (length > kMaxHeader)
        throw ValueError(str("save_safetensors: the header must have at most ", kMaxHeader,
                             " bytes: it has ", length));
}

std::string json_text(const std::string& text) {
    check_header_length(text.size());
    std::string quoted;
    try {
        quoted = nlohmann::json(text).dump();
    } catch (const nlohmann::json::exception&) {
        throw ValueError(
            str("save_safetensors: names and metadata must be UTF-8: ", in_quotes(text)));
    }
    if (quoted.size() > kMaxSafetensorsText)
        throw ValueError(str("save_safetensors: a name or text must have at most ",
                             kMaxSafetensorsText, " bytes as JSON: ", quoted.size(),
                             " bytes: ", in_quotes(text)));
    return quoted;
}

// Throws FileError if a quoted text, or the text between two quoted texts, is too long. The parser
// keeps this text. For an error message, it makes several copies in which each line break has 8
// bytes.
void check_tokens(std::string_view text) {
    constexpr std::size_t kMaxGap = std::size_t{1} << 19;
    std::size_t begin = 0;
    bool is_quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (i - begin > (is_quoted ? kMaxSafetensorsText : kMaxGap))
            throw FileError(str("the header must have at most ",
                                is_quoted ? kMaxSafetensorsText : kMaxGap,
                                is_quoted ? " bytes in a name or text" : " bytes between two texts",
                                ": more at byte ", i));
        if (c == '"') {
            is_quoted = !is_quoted;
            begin = i;
        } else if (c == '\\' && is_quoted) {
            ++i;
        }
    }
}

}  // namespace

std::optional<DType> dtype_named(std::string_view name) {
    for (const auto& [known, dtype] : kDTypes)
        if (name == known) return dtype;
    return std::nullopt;
}

std::string name_in_safetensors(DType dtype) {
    for (const auto& [name, known] : kDTypes)
        if (dtype == known) return name;
    throw ValueError(str("safetensors: the format has no dtype ", dtype));
}

int safetensors_rank(DType dtype) {
    int rank = 0;
    while (kDTypes[rank].second != dtype) ++rank;
    return rank;
}

SafetensorsHeader read_safetensors_header(const std::string& text) {
    // The parser would stop at a zero byte and ignore all text after it.
    if (!text.starts_with('{') || text.find('\0') != std::string::npos)
        throw FileError("the header is not JSON text that starts with '{'");
    check_tokens(std::string_view(text).substr(0, text.find_last_not_of(' ') + 1));
    HeaderReader reader(text);
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader))
        throw FileError(reader.reason);
    return {std::move(reader.entries), std::move(reader.metadata)};
}

std::string write_safetensors_header(const NamedTensors& sorted, const Metadata& metadata) {
    if (metadata.size() > kMaxSafetensorsMetadata)
        throw ValueError(str("save_safetensors: the metadata must have at most ",
                             kMaxSafetensorsMetadata, " keys: it has ", metadata.size()));
    if (sorted.size() > kMaxSafetensorsTensors)
        throw ValueError(str("save_safetensors: a file must have at most ", kMaxSafetensorsTensors,
                             " tensors: got ", sorted.size()));
    std::string header = "{";
    if (!metadata.empty()) {
        header += str('"', kMetadataKey, "\":{");
        for (const auto& [key, text] : metadata)
            header += json_text(key) + ":" + json_text(text) + ",";
        header.back() = '}';
        header += ",";
    }
    std::int64_t begin = 0;
    for (const auto& [name, tensor] : sorted) {
        if (name == kMetadataKey)
            throw ValueError(
                "save_safetensors: the name is reserved by the format: '__metadata__'");
        // The text is not written with a stream, because the program's locale may group digits.
        header += json_text(name) + R"(:{"dtype":")";
        header += kDTypes[safetensors_rank(tensor.dtype())].first;
        header += R"(","shape":[)";
        for (int d = 0; d < tensor.dim(); ++d)
            header += (d == 0 ? "" : ",") + std::to_string(tensor.shape()[d]);
        const std::int64_t end = begin + tensor.numel() * size_of(tensor.dtype());
        header +=
            R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]},";
        begin = end;
    }
    if (header.back() == ',') header.pop_back();
    header += "}";
    header.append((8 - header.size() % 8) % 8, ' ');
    check_header_length(header.size());
    return header;
}

}  // namespace axle
