#include "data/files/npy.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/check.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "data/files/bytes.h"
#include "data/files/npy_header.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are stored little-endian");

Dims reversed(const Dims& dims) {
    Dims result = dims;
    std::reverse(result.begin(), result.end());
    return result;
}

// Returns an array of a file in Fortran order as a contiguous tensor. `transposed` is the
// transposed array: its elements in C order are the elements of the file.
Tensor in_row_order(const Tensor& transposed) {
    Dims order;
    for (int d = transposed.dim() - 1; d >= 0; --d) order.push_back(d);
    return contiguous(permute(transposed, order));
}

// Throws FileError if a byte is neither 0 nor 1, because reading such a byte as a bool is undefined
// behavior. `start` is the offset of the data in the file.
void check_booleans(std::span<const std::byte> data, std::size_t start, const std::string& name) {
    const auto bad =
        std::find_if(data.begin(), data.end(), [](std::byte b) { return b > std::byte{1}; });
    if (bad != data.end())
        throw_at_byte(name, static_cast<std::int64_t>(start) + (bad - data.begin()),
                      str("a boolean element must be 0 or 1: ", std::to_integer<int>(*bad)));
}

}  // namespace

Tensor load_npy(const std::string& path) { return parse_npy(MappedFile(path).bytes(), path); }

Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name) {
    const NpyHeader header = read_npy_header(bytes, name);
    const std::span<const std::byte> data = bytes.subspan(header.bytes);
    const auto start = static_cast<std::int64_t>(header.bytes);
    const std::int64_t needed = checked_bytes(header.shape, header.dtype);
    if (needed < 0)
        throw_at_byte(name, start, str("the number of bytes overflows int64: ", header.shape));
    if (needed > std::ssize(data))
        throw_at_byte(
            name, std::ssize(bytes),
            str("the elements are truncated: ", header.shape, " of ", header.dtype, " needs ",
                needed, " bytes, but only ", data.size(), " follow the header"));
    if (needed < std::ssize(data))
        throw_at_byte(name, start + needed,
                      str("unexpected bytes after the last element of ", header.shape));
    if (header.dtype == DType::boolean) check_booleans(data, header.bytes, name);

    const Shape& shape = header.shape;
    Tensor elements =
        empty(header.fortran_order ? reversed(shape) : shape, {.dtype = header.dtype});
    if (needed != 0) std::memcpy(elements.raw_data(), data.data(), data.size());
    const bool complex = header.dtype == DType::c64;  // an element consists of two floats
    if (header.big_endian) swap_bytes(bytes_of(elements), complex ? 4 : size_of(header.dtype));
    return header.fortran_order ? in_row_order(elements) : elements;
}

void save_npy(const std::string& path, const Tensor& tensor) {
    if (!tensor.defined()) throw UsageError("save_npy: the tensor is undefined");
    if (tensor.device().is_meta())
        throw DeviceError("save_npy: the tensor is on the meta device and has no data");
    const std::string header = write_npy_header(tensor.dtype(), tensor.shape());
    const Tensor dense = contiguous(to(tensor.detach(), Device::cpu()));
    write_file_atomically(path, [&](AtomicFile& file) {
        file.write(header);
        file.write(bytes_of(dense));
    });
}

}  // namespace axle::data
