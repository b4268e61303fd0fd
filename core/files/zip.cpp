// Reads zip files through the directory at their end. The local header before an entry may lack
// sizes; it is used only to check the name and to find the first byte of the data.
#include "core/files/zip.h"

#include <algorithm>
#include <memory>
#include <new>
#include <string_view>

#include <zlib.h>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle {
namespace {

constexpr std::uint32_t kEntrySignature = 0x02014b50, kLocalSignature = 0x04034b50;
constexpr std::uint32_t kEndSignature = 0x06054b50, kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kLocator64Signature = 0x07064b50;
constexpr std::uint64_t kEntryBytes = 46, kLocalBytes = 30, kEndBytes = 22, kEnd64Bytes = 56;
constexpr std::uint64_t kLocator64Bytes = 20, kLongestComment = 0xffff;
constexpr std::size_t kMaxChunk = 1u << 30;  // zlib counts the bytes of a chunk in 32 bits
constexpr std::uint16_t kDeflated = 8;
constexpr std::uint32_t kStoredInZip64 = 0xffffffff;  // the zip64 field contains the number

[[noreturn]] void fail(const std::string& reason) { throw FileError(reason); }
[[noreturn]] void fail(std::string_view entry, const std::string& reason) {
    fail(str("entry ", in_quotes(entry), ": ", reason));
}

// A range of the file's bytes. Its functions read little-endian numbers.
class Bytes {
  public:
    explicit Bytes(std::span<std::byte> bytes) : bytes_(bytes) {}

    std::uint64_t size() const { return bytes_.size(); }
    std::span<std::byte> span() const { return bytes_; }
    std::string_view text() const {
        return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
    }
    Bytes part(std::uint64_t begin, std::uint64_t length) const {
        if (begin > size() || length > size() - begin)
            fail("not a complete zip file: its directory points outside of it");
        return Bytes(bytes_.subspan(begin, length));
    }
    std::uint16_t u16(std::uint64_t at) const {
        return static_cast<std::uint16_t>(number(at, sizeof(std::uint16_t)));
    }
    std::uint32_t u32(std::uint64_t at) const {
        return static_cast<std::uint32_t>(number(at, sizeof(std::uint32_t)));
    }
    std::uint64_t u64(std::uint64_t at) const { return number(at, sizeof(std::uint64_t)); }

  private:
    std::uint64_t number(std::uint64_t at, std::uint64_t length) const {
        std::uint64_t value = 0;
        const Bytes digits = part(at, length);
        for (std::uint64_t i = length; i-- > 0;)
            value = value << 8 | std::to_integer<std::uint64_t>(digits.bytes_[i]);
        return value;
    }

    std::span<std::byte> bytes_;
};

struct Directory {
    std::uint64_t count, size, offset;
};

std::uint64_t find_end(const Bytes& file) {
    if (file.size() >= kEndBytes) {
        const std::uint64_t last = file.size() - kEndBytes;
        const std::uint64_t first = last - std::min(last, kLongestComment);
        for (std::uint64_t at = last + 1; at-- > first;)
            if (file.u32(at) == kEndSignature && file.u16(at + 20) == file.size() - kEndBytes - at)
                return at;
    }
    fail("not a complete zip file: no directory at its end");
}

Directory find_directory(const Bytes& file) {
    const std::uint64_t end = find_end(file);
    const bool is_64 =
        end >= kLocator64Bytes && file.u32(end - kLocator64Bytes) == kLocator64Signature;
    if (!is_64) {
        if (file.u16(end + 4) != 0 || file.u16(end + 6) != 0)
            fail("split zip files are not supported");
        return {file.u16(end + 10), file.u32(end + 12), file.u32(end + 16)};
    }
    const Bytes end64 = file.part(file.u64(end - kLocator64Bytes + 8), kEnd64Bytes);
    if (end64.u32(0) != kEnd64Signature)
        fail("not a complete zip file: its zip64 directory end is missing");
    if (end64.u32(16) != 0 || end64.u32(20) != 0) fail("split zip files are not supported");
    return {end64.u64(32), end64.u64(40), end64.u64(48)};
}

// Reads the numbers of an entry that do not fit in 32 bits. They are stored in an extra field after
// the name, in the order of the parameters.
void read_64(const Bytes& extra, std::uint64_t& size, std::uint64_t& stored,
             std::uint64_t& offset) {
    for (std::uint64_t at = 0; at + 4 <= extra.size();) {
        const std::uint16_t id = extra.u16(at), length = extra.u16(at + 2);
        const Bytes field = extra.part(at + 4, length);
        at += 4 + length;
        if (id != 1) continue;
        std::uint64_t next = 0;
        for (std::uint64_t* number : {&size, &stored, &offset}) {
            if (*number != kStoredInZip64) continue;
            *number = field.u64(next);
            next += 8;
        }
    }
}

ZipMember read_entry(const Bytes& file, const Bytes& header, const Bytes& name,
                     const Bytes& extra) {
    const std::uint16_t flags = header.u16(8), method = header.u16(10);
    std::uint64_t stored = header.u32(20), size = header.u32(24), offset = header.u32(42);
    read_64(extra, size, stored, offset);
    if ((flags & 1) != 0) fail(name.text(), "is encrypted");
    const bool is_deflated = method == kDeflated;
    if (!is_deflated && method != 0)
        fail(name.text(), str("has the compression method ", method,
                              "; only stored (0) and deflated (8) entries can be read"));
    if (!is_deflated && stored != size) fail(name.text(), "is stored with two different sizes");
    if (is_deflated && size / std::uint64_t{kMaxInflateRatio} > stored)
        fail(name.text(), str("cannot have ", size, " bytes: it is compressed to ", stored,
                              " bytes, more than deflate can"));
    const Bytes local = file.part(offset, kLocalBytes);
    const std::uint64_t name_at = offset + kLocalBytes;
    if (local.u32(0) != kLocalSignature || file.part(name_at, local.u16(26)).text() != name.text())
        fail(name.text(), "is not at the offset given in the directory");
    const Bytes bytes = file.part(name_at + local.u16(26) + local.u16(28), stored);
    return {name.text(), bytes.span(), size, header.u32(16), is_deflated};
}

// Throws FileError if two entries overlap or have the same name. Sorts the entries by name.
void check_separate(std::vector<ZipMember>& entries) {
    std::ranges::sort(entries, {}, [](const ZipMember& e) { return e.bytes.data(); });
    const std::byte* end = nullptr;
    for (const ZipMember& entry : entries) {
        if (entry.bytes.empty()) continue;
        if (entry.bytes.data() < end) fail(entry.name, "overlaps with another entry");
        end = entry.bytes.data() + entry.bytes.size();
    }
    std::ranges::sort(entries, {}, &ZipMember::name);
    const auto duplicate = std::ranges::adjacent_find(entries, {}, &ZipMember::name);
    if (duplicate != entries.end()) fail(duplicate->name, "duplicate name");
}

}  // namespace

std::vector<ZipMember> read_zip(std::span<std::byte> bytes) {
    const Bytes file(bytes);
    const Directory directory = find_directory(file);
    if (directory.size > kMaxZipDirectory)
        fail(str("the zip directory has ", directory.size, " bytes, more than the maximum of ",
                 kMaxZipDirectory));
    const Bytes headers = file.part(directory.offset, directory.size);
    std::vector<ZipMember> entries;
    entries.reserve(std::min(directory.count, headers.size() / kEntryBytes));
    std::uint64_t at = 0;
    for (std::uint64_t i = 0; i < directory.count; ++i) {
        const Bytes header = headers.part(at, kEntryBytes);
        if (header.u32(0) != kEntrySignature) fail("the directory is corrupt");
        const std::uint64_t name = at + kEntryBytes, extra = name + header.u16(28),
                            comment = extra + header.u16(30);
        entries.push_back(read_entry(file, header, headers.part(name, header.u16(28)),
                                     headers.part(extra, header.u16(30))));
        at = comment + header.u16(32);
    }
    check_separate(entries);
    return entries;
}

std::vector<ZipMember> read_stored_zip(std::span<std::byte> bytes) {
    std::vector<ZipMember> entries = read_zip(bytes);
    const auto deflated = std::ranges::find(entries, true, &ZipMember::is_deflated);
    if (deflated != entries.end())
        fail(deflated->name, "is compressed; torch.save does not compress entries");
    return entries;
}

const ZipMember* find_entry(std::span<const ZipMember> sorted, std::string_view name) {
    const auto found = std::ranges::lower_bound(sorted, name, {}, &ZipMember::name);
    return found == sorted.end() || found->name != name ? nullptr : &*found;
}

void check_crc(const ZipMember& entry) {
    const auto* bytes = reinterpret_cast<const Bytef*>(entry.bytes.data());
    if (crc32_z(0, bytes, entry.bytes.size()) != entry.crc)
        fail(entry.name, "is corrupt: the checksum does not match");
}

void inflate_entry(const ZipMember& entry, std::span<std::byte> out) {
    z_stream stream = {};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
    const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
    std::span<std::byte> from = entry.bytes, to = out;
    int result = Z_OK;
    while (result == Z_OK) {
        if (stream.avail_in == 0) {
            stream.avail_in = static_cast<uInt>(std::min(from.size(), kMaxChunk));
            stream.next_in = reinterpret_cast<Bytef*>(from.data());
            from = from.subspan(stream.avail_in);
        }
        if (stream.avail_out == 0) {
            stream.avail_out = static_cast<uInt>(std::min(to.size(), kMaxChunk));
            stream.next_out = reinterpret_cast<Bytef*>(to.data());
            to = to.subspan(stream.avail_out);
        }
        result = inflate(&stream, Z_NO_FLUSH);
    }
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result != Z_STREAM_END)
        fail(entry.name,
             str("is corrupt: ", stream.msg != nullptr ? stream.msg : "its size is wrong"));
    if (stream.avail_in != 0 || !from.empty() || stream.avail_out != 0 || !to.empty())
        fail(entry.name, "is corrupt: its size is wrong");
    if (crc32_z(0, reinterpret_cast<const Bytef*>(out.data()), out.size()) != entry.crc)
        fail(entry.name, "is corrupt: the checksum does not match");
}

}  // namespace axle
