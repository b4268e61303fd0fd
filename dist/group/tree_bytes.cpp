#include "dist/group/tree_bytes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/ops.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

// The format is a kind, followed by
//     tensor    dtype, number of dimensions, sizes, elements
//     string    length, bytes
//     list      length, trees
//     map       length, key (as a string) and tree of each entry
// Lengths, sizes, integers and numbers have 8 bytes; kinds, dtypes, numbers of dimensions and
// booleans have one byte.
static_assert(std::endian::native == std::endian::little);
constexpr auto kLastKind = static_cast<unsigned char>(Tree::Kind::map);
constexpr auto kLastDType = static_cast<unsigned char>(DType::c64);

class Writer {
  public:
    explicit Writer(std::string_view op) : op_(op) {}

    std::string bytes;

    void write(const Tree& tree, int depth) {
        if (depth > kMaxTreeDepth)
            throw ValueError(
                str(op_, ": the tree is nested deeper than ", kMaxTreeDepth, " levels"));
        put(static_cast<unsigned char>(tree.kind()));
        switch (tree.kind()) {
            case Tree::Kind::null:
                return;
            case Tree::Kind::tensor:
                return write_tensor(tree.tensor());
            case Tree::Kind::integer:
                return put(tree.integer());
            case Tree::Kind::number:
                return put(tree.number());
            case Tree::Kind::flag:
                return put(static_cast<unsigned char>(tree.boolean()));
            case Tree::Kind::string:
                return write_text(tree.string());
            case Tree::Kind::list:
                put(std::uint64_t{tree.size()});
                for (const Tree& element : tree.elements()) write(element, depth + 1);
                return;
            case Tree::Kind::map:
                put(std::uint64_t{tree.size()});
                for (const auto& [key, value] : tree.entries()) {
                    write_text(key);
                    write(value, depth + 1);
                }
                return;
        }
    }

  private:
    template <class T>
    void put(T value) {
        bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void write_text(std::string_view text) {
        put(std::uint64_t{text.size()});
        bytes += text;
    }
    void write_tensor(const Tensor& tensor) {
        if (tensor.device().is_meta())
            throw DeviceError(
                str(op_, ": a tensor is on the meta device and has no data: ", tensor.shape()));
        const Tensor x = contiguous(to(tensor.detach(), Device::cpu()));
        put(static_cast<unsigned char>(x.dtype()));
        put(static_cast<unsigned char>(x.dim()));
        for (const std::int64_t size : x.shape()) put(size);
        const auto length = static_cast<std::size_t>(x.numel() * size_of(x.dtype()));
        if (length > 0) bytes.append(static_cast<const char*>(x.raw_data()), length);
    }

    std::string_view op_;
};

class Reader {
  public:
    explicit Reader(std::string_view bytes) : rest_(bytes) {}

    bool at_end() const { return rest_.empty(); }

    Tree read(int depth) {
        if (depth > kMaxTreeDepth)
            fail(str("the tree is nested deeper than ", kMaxTreeDepth, " levels"));
        switch (static_cast<Tree::Kind>(take_byte(kLastKind, "unknown kind of a value"))) {
            case Tree::Kind::null:
                return {};
            case Tree::Kind::tensor:
                return read_tensor();
            case Tree::Kind::integer:
                return take_number<std::int64_t>();
            case Tree::Kind::number:
                return take_number<double>();
            case Tree::Kind::flag:
                return take_byte(1, "a boolean is neither 0 nor 1") != 0;
            case Tree::Kind::string:
                return std::string(take_text());
            case Tree::Kind::list: {
                Tree::List elements;
                for (std::uint64_t n = take_count(); n > 0; --n)
                    elements.push_back(read(depth + 1));
                return elements;
            }
            case Tree::Kind::map:
                break;
        }
        Tree map = Tree::map();
        for (std::uint64_t n = take_count(); n > 0; --n) {
            std::string key(take_text());
            map.entries().push_back({std::move(key), read(depth + 1)});
        }
        return map;
    }

  private:
    [[noreturn]] static void fail(const std::string& what) {
        throw CommError(str("collective of objects: invalid data from another process: ", what));
    }

    std::string_view take(std::uint64_t length) {
        if (length > rest_.size()) fail("the data are truncated");
        const std::string_view taken = rest_.substr(0, length);
        rest_.remove_prefix(length);
        return taken;
    }
    template <class T>
    T take_number() {
        T value;
        std::memcpy(&value, take(sizeof value).data(), sizeof value);
        return value;
    }
    unsigned char take_byte(unsigned char last, const char* what) {
        const auto byte = take_number<unsigned char>();
        if (byte > last) fail(str(what, ": ", int{byte}));
        return byte;
    }
    // Reads the number of elements. Every element has at least one byte, so throws CommError if the
    // number exceeds the number of remaining bytes.
    std::uint64_t take_count() {
        const auto count = take_number<std::uint64_t>();
        if (count > rest_.size()) fail("the data are truncated");
        return count;
    }
    std::string_view take_text() { return take(take_number<std::uint64_t>()); }

    Tree read_tensor() {
        const auto dtype =
            static_cast<DType>(take_byte(kLastDType, "a dtype must be a known number"));
        Shape shape;
        for (int n = take_byte(kMaxDims, "a tensor has too many dimensions"); n > 0; --n) {
            const auto size = take_number<std::int64_t>();
            if (size < 0) fail(str("a tensor has a negative size: ", size));
            shape.push_back(size);
        }
        const std::int64_t length = checked_bytes(shape, dtype);
        if (length < 0) fail(str("a tensor is too large: ", shape, " of ", dtype));
        const std::string_view elements = take(static_cast<std::uint64_t>(length));
        if (dtype == boolean &&
            std::ranges::any_of(elements, [](char c) { return c != 0 && c != 1; }))
            fail("a boolean element is neither 0 nor 1");
        const Tensor x = Tensor::empty(shape, {.dtype = dtype});
        if (length > 0) std::memcpy(x.raw_data(), elements.data(), elements.size());
        return x;
    }

    std::string_view rest_;
};

}  // namespace

std::string to_bytes(std::string_view op, const Tree& tree) {
    Writer writer(op);
    writer.write(tree, 0);
    return std::move(writer.bytes);
}

Tree from_bytes(std::string_view bytes) {
    Reader reader(bytes);
    Tree tree = reader.read(0);
    if (!reader.at_end())
        throw CommError(
            "collective of objects: invalid data from another process: unexpected bytes at the "
            "end");
    return tree;
}

}  // namespace axle::dist
