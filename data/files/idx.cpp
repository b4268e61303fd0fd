#include "data/files/idx.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "core/check.h"
#include "core/files/file.h"
#include "core/files/zip.h"
#include "core/ops.h"
#include "data/files/bytes.h"
#include "data/files/gzip.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

static_assert(std::endian::native == std::endian::little, "idx elements are byte-swapped");

// Reads the bytes of a file sequentially, and decompresses them if they are gzip data.
class ByteSource {
  public:
    ByteSource(std::span<const std::byte> bytes, const std::string& name)
        : name_(name), rest_(bytes) {
        if (is_gzip(bytes)) gzip_.emplace(bytes, name);
    }

    bool compressed() const { return gzip_.has_value(); }
    std::int64_t position() const { return position_; }
    // Returns an upper bound of the number of bytes that read() can still return.
    std::int64_t max_remaining() const {
        std::int64_t max_bytes = std::ssize(rest_);
        if (gzip_ && __builtin_mul_overflow(max_bytes, kMaxInflateRatio, &max_bytes))
            return INT64_MAX;
        return max_bytes;
    }
    std::size_t read(std::span<std::byte> out) {
        const std::size_t n = gzip_ ? gzip_->read(out) : copy(out);
        position_ += static_cast<std::int64_t>(n);
        return n;
    }
    // Fills `out`. Throws FileError if the data end before `out` is full. `what` is the name of the
    // part of the file, for the message.
    void fill(std::span<std::byte> out, const char* what) {
        const std::int64_t start = position_;
        if (read(out) != out.size())
            throw_at(position_, str(what, " is truncated: got ", position_ - start, " of ",
                                    out.size(), " bytes"));
    }
    [[noreturn]] void throw_at(std::int64_t offset, const std::string& what) const {
        throw_at_byte(name_, offset, what);
    }

  private:
    std::size_t copy(std::span<std::byte> out) {
        const std::size_t n = std::min(out.size(), rest_.size());
        if (n != 0) std::memcpy(out.data(), rest_.data(), n);
        rest_ = rest_.subspan(n);
        return n;
    }

    const std::string& name_;
    std::span<const std::byte> rest_;  // the unread part of plain data, or all compressed data
    std::optional<GzipReader> gzip_;
    std::int64_t position_ = 0;
};

std::optional<DType> dtype_of_code(std::byte code) {
    switch (std::to_integer<int>(code)) {
        case 0x08:
            return DType::u8;
        case 0x09:
            return DType::i8;
        case 0x0b:
            return DType::i16;
        case 0x0c:
            return DType::i32;
        case 0x0d:
            return DType::f32;
        case 0x0e:
            return DType::f64;
        default:
            return std::nullopt;
    }
}

Shape read_sizes(ByteSource& source, int rank) {
    Shape shape;
    for (int d = 0; d < rank; ++d) {
        std::uint32_t size = 0;
        const auto bytes = std::as_writable_bytes(std::span(&size, 1));
        source.fill(bytes, "the list of sizes");
        swap_bytes(bytes, sizeof size);
        shape.push_back(size);
    }
    return shape;
}

// Throws FileError if the data are too short for the given shape or exceed the limit of the
// options. Called before memory is allocated.
void check_size(const ByteSource& source, const Shape& shape, DType dtype, IdxOptions options) {
    const std::int64_t bytes = checked_bytes(shape, dtype);
    constexpr std::int64_t kSizesOffset = 4;  // the offset of the sizes in the file
    if (bytes < 0)
        source.throw_at(kSizesOffset, str("the number of bytes overflows int64: ", shape));
    if (bytes > source.max_remaining())
        source.throw_at(kSizesOffset,
                        str(shape, " of ", dtype, " needs ", bytes, " bytes, but at most ",
                            source.max_remaining(), " follow"));
    if (source.compressed() && bytes > options.max_inflated)
        source.throw_at(kSizesOffset, str(shape, " of ", dtype, " needs ", bytes,
                                          " bytes, more than max_inflated: ", options.max_inflated,
                                          "; raise the limit, or decompress the file"));
}

}  // namespace

Tensor read_idx(const std::string& path, IdxOptions options) {
    return parse_idx(MappedFile(path).bytes(), path, options);
}

Tensor parse_idx(std::span<const std::byte> bytes, const std::string& name, IdxOptions options) {
    ByteSource source(bytes, name);
    std::byte magic[4];
    source.fill(magic, "the magic number");
    if (magic[0] != std::byte{0} || magic[1] != std::byte{0})
        source.throw_at(0, "not an idx file: it does not start with two zero bytes");
    const std::optional<DType> dtype = dtype_of_code(magic[2]);
    if (!dtype)
        source.throw_at(2, str("the type code must be 8, 9, 11, 12, 13 or 14: it is ",
                               std::to_integer<int>(magic[2])));
    const int rank = std::to_integer<int>(magic[3]);
    if (rank > kMaxDims)
        source.throw_at(3, str("at most ", kMaxDims, " dimensions are supported, not ", rank));
    const Shape shape = read_sizes(source, rank);
    check_size(source, shape, *dtype, options);

    Tensor elements = empty(shape, {.dtype = *dtype});
    source.fill(bytes_of(elements), "the list of elements");
    const std::int64_t end = source.position();
    if (std::byte extra[1]; source.read(extra) != 0)
        source.throw_at(end, str("unexpected bytes after the last element of ", shape));
    swap_bytes(bytes_of(elements), size_of(*dtype));
    return elements;
}

}  // namespace axle::data
