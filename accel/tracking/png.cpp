#include "accel/tracking/png.h"

#include <limits>
#include <string_view>

#include <zlib.h>

#include "kernels/error.h"

namespace axle::accel {
namespace {

void append_big_endian(std::string& out, std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
}

void append_chunk(std::string& file, std::string_view type, std::string_view data) {
    append_big_endian(file, static_cast<std::uint32_t>(data.size()));
    std::string body(type);
    body += data;
    file += body;
    append_big_endian(file, static_cast<std::uint32_t>(::crc32_z(
                                0, reinterpret_cast<const Bytef*>(body.data()), body.size())));
}

std::string compressed(const std::string& bytes) {
    uLongf size = ::compressBound(bytes.size());
    std::string out(size, '\0');
    if (::compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                    reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(),
                    Z_DEFAULT_COMPRESSION) != Z_OK)
        throw Error("encode_png: zlib is out of memory");
    out.resize(size);
    return out;
}

}  // namespace

std::string encode_png(std::span<const std::uint8_t> pixels, std::int64_t height,
                       std::int64_t width, int channels) {
    static constexpr std::int64_t kLongest = std::numeric_limits<std::int32_t>::max();
    if (channels < 1 || channels > 4)
        throw ValueError(str("encode_png: channels must be from 1 to 4: ", channels));
    if (height < 1 || width < 1 || height > kLongest || width > kLongest ||
        std::ssize(pixels) / channels / width != height ||
        std::ssize(pixels) % (channels * width) != 0)
        throw ValueError(str("encode_png: the height and the width must be from 1 to ", kLongest,
                             ", and pixels must have height * width * channels bytes: height ",
                             height, ", width ", width, ", channels ", channels, ", ",
                             pixels.size(), " bytes"));
    // Each row begins with a filter type; 0 means no filter.
    const auto row = static_cast<std::size_t>(width * channels);
    std::string rows;
    rows.reserve((row + 1) * static_cast<std::size_t>(height));
    for (std::size_t at = 0; at < pixels.size(); at += row) {
        rows += '\0';
        rows.append(reinterpret_cast<const char*>(pixels.data() + at), row);
    }
    static constexpr char kColourTypes[] = {0, 4, 2, 6};
    std::string header;
    append_big_endian(header, static_cast<std::uint32_t>(width));
    append_big_endian(header, static_cast<std::uint32_t>(height));
    header.append({8, kColourTypes[channels - 1], 0, 0, 0});

    std::string file = "\x89PNG\r\n\x1a\n";
    append_chunk(file, "IHDR", header);
    append_chunk(file, "IDAT", compressed(rows));
    append_chunk(file, "IEND", "");
    return file;
}

}  // namespace axle::accel
