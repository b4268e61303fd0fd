#include "data/webdataset/web_dataset.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/files/file.h"
#include "core/ops.h"
#include "core/text/text.h"
#include "data/files/bytes.h"
#include "data/files/characters.h"
#include "data/files/npy.h"
#include "data/webdataset/tar.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

constexpr std::size_t kMaxFields = 1000;
constexpr const char* kKey = "__key__";
constexpr const char* kUrl = "__url__";

bool is_one_of(std::string_view kind, std::initializer_list<std::string_view> kinds) {
    return std::ranges::find(kinds, kind) != kinds.end();
}

std::int64_t integer_of(std::string_view text, const std::string& name) {
    constexpr std::string_view kSpaces = " \t\r\n";
    std::string_view digits = text;
    digits.remove_prefix(std::min(digits.find_first_not_of(kSpaces), digits.size()));
    digits = digits.substr(0, digits.find_last_not_of(kSpaces) + 1);
    std::int64_t value = 0;
    const char* const last = digits.data() + digits.size();
    const auto [end, error] = std::from_chars(digits.data(), last, value);
    if (error != std::errc() || end != last)
        throw FileError(name + ": expected an integer, found " + in_quotes(text));
    return value;
}

std::string_view checked_utf8(std::string_view text, const std::string& name) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = character_length(text, at);
        if (length == 0) throw FileError(str(name, ": byte ", at, ": the text is not valid UTF-8"));
        at += length;
    }
    return text;
}

Tree json_of(std::string_view text, const std::string& name) {
    const std::size_t max_memory = (std::size_t{64} << 20) + 8 * text.size();
    try {
        return from_json(text, max_memory);
    } catch (const ValueError& error) {
        throw FileError(name + ": " + error.what());
    }
}

// Returns the value of a field. Errors begin with `name`.
Tree decoded(std::string_view extension, const Tensor& encoded, const std::string& name,
             const DecodeOptions& images) {
    const std::string_view kind = extension.substr(extension.rfind('.') + 1);
    const std::span<const std::byte> bytes = bytes_of(encoded);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (is_one_of(kind, {"jpg", "jpeg", "png"})) return decode_image(bytes, name, images);
    if (is_one_of(kind, {"cls", "cls2", "class", "count", "index", "inx", "id"}))
        return integer_of(text, name);
    if (is_one_of(kind, {"txt", "text", "transcript"})) return checked_utf8(text, name);
    if (is_one_of(kind, {"json", "jsn"})) return json_of(text, name);
    if (kind == "npy") return parse_npy(bytes, name);
    return encoded;
}

// A file of a sample.
struct Field {
    std::string key, extension;
    TarMember member;
};

// Returns whether the first component of a name is "__...__".
bool is_metadata(std::string_view name) {
    const std::string_view first = name.substr(0, name.find('/'));
    return first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
}

// Returns nullopt if the file does not belong to a sample.
std::optional<Field> field_of(TarMember member) {
    const std::string_view name = member.name;
    const std::size_t base = name.rfind('/') + 1;  // 0 without a slash
    const std::size_t dot = name.find('.', base);
    if (dot == base || dot >= name.size() - 1 || is_metadata(name)) return std::nullopt;
    return Field{std::string(name.substr(0, dot)), lower(name.substr(dot + 1)), std::move(member)};
}

// Reads the samples of one archive.
class ArchiveStream : public Stream {
  public:
    ArchiveStream(const std::string& path, const WebDatasetOptions& options)
        : archive_(path), options_(options) {}

    std::optional<Tree> next() override {
        std::vector<Field> fields = next_fields();
        if (fields.empty()) return std::nullopt;
        if (!options_.fields.empty()) fields = selected(fields);
        Tree sample{{kKey, fields[0].key}, {kUrl, archive_.path()}};
        std::int64_t bytes_left = options_.max_sample_bytes;
        for (const Field& field : fields) {
            if (field.member.size > bytes_left)
                archive_.fail(field.member,
                              str("has ", field.member.size, " bytes, but only ", bytes_left,
                                  " bytes of WebDatasetOptions::max_sample_bytes are left"));
            bytes_left -= field.member.size;
            sample.set(field.extension, value_of(field));
        }
        return sample;
    }

    std::int64_t skip(std::int64_t n) override {
        std::int64_t skipped = 0;
        while (skipped < n && !next_fields().empty()) ++skipped;
        return skipped;
    }

  private:
    // Returns the next file that belongs to a sample, or nullopt at the end.
    std::optional<Field> next_field() {
        while (std::optional<TarMember> member = archive_.next())
            if (std::optional<Field> field = field_of(*std::move(member))) return field;
        return std::nullopt;
    }

    // Returns all fields of the next sample, or an empty list at the end.
    std::vector<Field> next_fields() {
        std::vector<Field> fields;
        if (!ahead_) ahead_ = next_field();
        for (; ahead_ && (fields.empty() || ahead_->key == fields[0].key); ahead_ = next_field()) {
            const std::string& extension = ahead_->extension;
            if (extension == kKey || extension == kUrl)
                archive_.fail(ahead_->member, str("the field name ", extension, " is reserved"));
            if (std::ranges::find(fields, extension, &Field::extension) != fields.end())
                archive_.fail(ahead_->member,
                              str("the sample has two fields ", in_quotes(extension)));
            if (fields.size() == kMaxFields)
                archive_.fail(ahead_->member,
                              str("the sample has more than ", kMaxFields, " fields"));
            fields.push_back(*std::move(ahead_));
        }
        return fields;
    }

    // Returns the fields that the options name.
    std::vector<Field> selected(std::vector<Field>& fields) const {
        std::vector<Field> wanted;
        for (const std::string& name : options_.fields) {
            const auto found = std::ranges::find(fields, name, &Field::extension);
            if (found == fields.end()) {
                std::string names;
                for (const Field& field : fields)
                    names += (names.empty() ? "" : ", ") + field.extension;
                archive_.fail(fields[0].member, str("the sample has no field ", in_quotes(name),
                                                    ", only ", printable(names)));
            }
            wanted.push_back(*found);
        }
        return wanted;
    }

    Tree value_of(const Field& field) const {
        const Tensor encoded = empty({field.member.size}, {.dtype = u8});
        archive_.read(field.member, bytes_of(encoded));
        if (!options_.decode) return encoded;
        try {
            const std::string name = "member " + in_quotes(field.member.name);
            return decoded(field.extension, encoded, name, options_.images);
        } catch (const FileError& error) {
            throw FileError(str(printable(archive_.path()), ": byte ", field.member.header, ": ",
                                error.what()));
        }
    }

    TarReader archive_;
    const WebDatasetOptions& options_;
    std::optional<Field> ahead_;  // the first field of the next sample, if it was read
};

class Archive : public IterableDataset {
  public:
    Archive(std::string path, std::shared_ptr<const WebDatasetOptions> options)
        : path_(std::move(path)), options_(std::move(options)) {}
    std::unique_ptr<Stream> stream(std::int64_t) const override {
        return std::make_unique<ArchiveStream>(path_, *options_);
    }

  private:
    std::string path_;
    std::shared_ptr<const WebDatasetOptions> options_;
};

void check_options(const WebDatasetOptions& options) {
    if (options.max_sample_bytes < 1)
        throw ValueError(str("WebDatasetOptions: max_sample_bytes must be positive: ",
                             options.max_sample_bytes));
    std::vector<std::string> fields = options.fields;
    std::ranges::sort(fields);
    if (!fields.empty() && fields[0].empty())
        throw ValueError("WebDatasetOptions: the name of a field must not be empty");
    if (const auto twice = std::ranges::adjacent_find(fields); twice != fields.end())
        throw ValueError(str("WebDatasetOptions: duplicate field ", in_quotes(*twice)));
}

const std::string& string_in(const Tree& sample, const char* key) {
    const Tree* value = sample.is_map() ? sample.find(key) : nullptr;
    if (value == nullptr || !value->is_string())
        throw ValueError(str("decode_webdataset_sample: expected a map with the string ", key));
    return value->string();
}

}  // namespace

ShardedDataset stream_webdataset(const std::vector<std::string>& paths,
                                 const WebDatasetOptions& options) {
    if (paths.empty())
        throw ValueError("stream_webdataset: needs at least one path: the list is empty");
    check_options(options);
    const auto shared = std::make_shared<const WebDatasetOptions>(options);
    std::vector<std::shared_ptr<const IterableDataset>> archives;
    archives.reserve(paths.size());
    for (const std::string& path : paths) {
        const InputFile opened(path);  // throws now, and not in the middle of a pass
        archives.push_back(std::make_shared<Archive>(path, shared));
    }
    return from_shards(std::move(archives));
}

ShardedDataset stream_webdataset(const std::string& pattern, const WebDatasetOptions& options) {
    return stream_webdataset(expand_braces(pattern), options);
}

Tree decode_webdataset_sample(const Tree& sample, const DecodeOptions& images) {
    const std::string& key = string_in(sample, kKey);
    const std::string& url = string_in(sample, kUrl);
    Tree result = Tree::map();
    for (const auto& [extension, value] : sample.entries()) {
        if (!value.is_tensor() || value.dtype() != u8 || value.dim() != 1) {
            result.set(extension, value);
            continue;
        }
        const std::string name = str("sample ", in_quotes(key), ": field ", in_quotes(extension));
        try {
            result.set(extension, decoded(extension, contiguous(value.tensor()), name, images));
        } catch (const FileError& error) {
            throw FileError(printable(url) + ": " + error.what());
        }
    }
    return result;
}

}  // namespace axle::data
