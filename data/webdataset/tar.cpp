#include "data/webdataset/tar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "data/files/bytes.h"
#include "data/files/characters.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

constexpr std::int64_t kBlock = 512;

// A header of one block.
class Header {
  public:
    std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(block_)); }
    bool is_zero() const {
        return std::ranges::all_of(block_, [](unsigned char byte) { return byte == 0; });
    }
    bool is_gzip() const { return block_[0] == 0x1f && block_[1] == 0x8b; }
    char type() const { return static_cast<char>(block_[156]); }
    // Returns the name; the format ustar stores a prefix of long names in another field.
    std::string name() const {
        const bool is_ustar = view(257, 6) == std::string_view("ustar\0", 6);
        const std::string_view prefix = is_ustar ? text(345, 155) : "";
        return std::string(prefix) + (prefix.empty() ? "" : "/") + std::string(text(0, 100));
    }
    std::optional<std::int64_t> size() const { return number(124, 12); }
    // Some old programs add the bytes as signed numbers.
    bool has_valid_checksum() const {
        constexpr std::size_t kAt = 148, kLength = 8;
        std::int64_t sum = std::int64_t{kLength} * ' ', signed_sum = sum;
        for (std::size_t i = 0; i < block_.size(); ++i) {
            if (i >= kAt && i < kAt + kLength) continue;
            sum += block_[i];
            signed_sum += static_cast<signed char>(block_[i]);
        }
        const std::optional<std::int64_t> stored = number(kAt, kLength);
        return stored == sum || stored == signed_sum;
    }

  private:
    std::string_view view(std::size_t at, std::size_t length) const {
        return {reinterpret_cast<const char*>(block_.data()) + at, length};
    }
    // Returns a field without the zero byte at its end, and the bytes after it.
    std::string_view text(std::size_t at, std::size_t length) const {
        const std::string_view field = view(at, length);
        return field.substr(0, field.find('\0'));
    }
    // Returns a number in octal digits, or in binary as in GNU's format. Returns nullopt if the
    // field is invalid, or the number is negative or exceeds int64.
    std::optional<std::int64_t> number(std::size_t at, std::size_t length) const {
        if (block_[at] >= 0x80) {
            std::int64_t value = block_[at] & 0x7f;
            for (std::size_t i = at + 1; i < at + length; ++i)
                if (__builtin_mul_overflow(value, 256, &value) ||
                    __builtin_add_overflow(value, block_[i], &value))
                    return std::nullopt;
            return value;
        }
        std::string_view digits = text(at, length);
        digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
        digits = digits.substr(0, digits.find_last_not_of(' ') + 1);
        std::int64_t value = 0;
        if (digits.empty()) return value;
        const auto [end, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
        const bool valid = error == std::errc() && end == digits.data() + digits.size();
        return valid && value >= 0 ? std::optional(value) : std::nullopt;
    }

    std::array<unsigned char, kBlock> block_ = {};
};

bool is_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = character_length(text, at);
        if (length == 0) return false;
        at += length;
    }
    return true;
}

bool has_parent_folder(std::string_view name) {
    for (std::size_t at = 0; at <= name.size();) {
        const std::size_t end = std::min(name.find('/', at), name.size());
        if (name.substr(at, end - at) == "..") return true;
        at = end + 1;
    }
    return false;
}

}  // namespace

void TarReader::fail(std::string_view reason) const {
    throw_at_byte(path(), header_, std::string(reason));
}

void TarReader::fail(const TarMember& member, std::string_view reason) const {
    throw_at_byte(path(), member.header, str("member ", in_quotes(member.name), ": ", reason));
}

std::optional<TarMember> TarReader::next() {
    while (!ended_) {
        header_ = at_;
        if (at_ == file_.size())
            fail(at_ == 0 ? "not a tar archive: the file is empty"
                          : "the archive is truncated: a block of zeros must mark its end");
        if (file_.size() - at_ < kBlock)
            fail(at_ == 0 ? "not a tar archive: it is shorter than a header"
                          : "the archive is truncated in a header");
        Header header;
        file_.read_at(at_, header.bytes());
        if (header.is_zero()) {
            if (extension_.is_present) fail("an extended header is not followed by a member");
            ended_ = true;
            break;
        }
        if (at_ == 0 && header.is_gzip())
            fail("the archive is compressed with gzip: decompress it first");
        if (!header.has_valid_checksum())
            fail(at_ == 0 ? "not a tar archive: the checksum of the first header is wrong"
                          : "the checksum of the header is wrong");

        TarMember member = {header.name(), at_, at_ + kBlock, 0};
        const char type = header.type();
        const bool is_extension = type == 'x' || type == 'g' || type == 'L' || type == 'K';
        Extension extension = is_extension ? Extension{} : std::exchange(extension_, {});
        if (extension.name) member.name = *std::move(extension.name);
        if (!is_extension) check_name(member);
        const bool is_directory = type == '5' || (type == '\0' && member.name.ends_with('/'));
        if (is_directory) {  // its size is not the size of contents
            at_ = member.begin;
            continue;
        }
        const std::optional<std::int64_t> size = extension.size ? extension.size : header.size();
        if (!size) fail(member, "the size is not a valid number");
        member.size = *size;
        if (member.size > file_.size() - member.begin)
            fail(member, str("the archive is truncated: the member has ", member.size,
                             " bytes, but only ", file_.size() - member.begin, " follow"));
        // The padding of the last member may be missing; the next header is then missing too.
        at_ = member.begin + member.size;
        at_ += std::min((kBlock - member.size % kBlock) % kBlock, file_.size() - at_);
        if (type == '0' || type == '\0' || type == '7') return member;
        if (!is_extension) {
            constexpr std::pair<char, const char*> kTypes[] = {
                {'1', "links"},   {'2', "symbolic links"}, {'3', "devices"},
                {'4', "devices"}, {'6', "pipes"},          {'S', "sparse files"}};
            const auto* known =
                std::ranges::find(kTypes, type, &std::pair<char, const char*>::first);
            if (known != std::end(kTypes)) fail(member, str(known->second, " are not supported"));
            fail(member, str("unknown type of member: ", in_quotes(std::string(1, type))));
        }
        if (member.size > kMaxTarExtension)
            fail(member, str("the extended header has ", member.size,
                             " bytes, more than the maximum of ", kMaxTarExtension));
        std::string text(static_cast<std::size_t>(member.size), '\0');
        read(member, std::as_writable_bytes(std::span(text)));
        if (type == 'L') {
            extension_.name = text.substr(0, text.find('\0'));
        } else if (type != 'K') {  // 'K' is the target of a link
            read_pax(text, type == 'g');
        }
        extension_.is_present |= type != 'g';
    }
    return std::nullopt;
}

// Reads records "<length> <key>=<value>\n", where the length includes the complete record.
void TarReader::read_pax(std::string_view text, bool is_global) {
    while (!text.empty()) {
        std::size_t length = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
        const auto digits = static_cast<std::size_t>(end - text.data());
        if (error != std::errc() || length > text.size() || length < digits + 2 ||
            text[digits] != ' ' || text[length - 1] != '\n')
            fail("a record of the pax header is invalid: expected '<length> <key>=<value>'");
        const std::string_view record = text.substr(digits + 1, length - digits - 2);
        text.remove_prefix(length);
        const std::size_t equals = record.find('=');
        if (equals == std::string_view::npos)
            fail("a record of the pax header is invalid: it has no '='");
        const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
        if (key.starts_with("GNU.sparse.")) fail("sparse files are not supported");
        if (key != "path" && key != "size") continue;
        if (is_global)
            fail(str("the global pax header sets the ", key,
                     " of all members, which is not "
                     "supported"));
        if (key == "path") {
            extension_.name = value;
            continue;
        }
        std::int64_t size = 0;
        const char* const last = value.data() + value.size();
        const auto number = std::from_chars(value.data(), last, size);
        if (number.ec != std::errc() || number.ptr != last || size < 0)
            fail(str("the size in the pax header is invalid: ", in_quotes(value)));
        extension_.size = size;
    }
}

void TarReader::check_name(const TarMember& member) const {
    const std::string& name = member.name;
    if (name.empty()) fail("a member has no name");
    if (name.size() > kMaxTarName)
        fail(member,
             str("the name has ", name.size(), " bytes, more than the maximum of ", kMaxTarName));
    if (name.find('\0') != std::string::npos || !is_utf8(name))
        fail(member, "the name is not valid UTF-8 text");
    if (name.starts_with('/')) fail(member, "the name is absolute");
    if (has_parent_folder(name)) fail(member, "the name contains '..'");
}

}  // namespace axle::data
