// CRC-32C is computed for eight bytes at a time. Table k has the checksum of each byte followed by
// k zero bytes. The checksum of eight bytes is therefore the exclusive or of eight independent
// look-ups. The tables have 8 KiB and are computed at compile time.
#include "accel/tracking/tfrecord.h"

#include <array>
#include <bit>
#include <cstring>

namespace axle::accel {
namespace {

static_assert(std::endian::native == std::endian::little);

using Table = std::array<std::uint32_t, 256>;

constexpr std::array<Table, 8> make_tables() {
    constexpr std::uint32_t kReflected = 0x82f63b78;
    std::array<Table, 8> tables = {};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReflected : 0);
        tables[0][byte] = crc;
    }
    for (std::size_t k = 1; k < 8; ++k)
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t before = tables[k - 1][byte];
            tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
        }
    return tables;
}

constexpr std::array<Table, 8> kTables = make_tables();

template <class T>
void append_integer(std::string& file, T value) {
    file.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
    std::uint32_t crc = 0xffffffff;
    for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data(), 8);
        word ^= crc;
        crc = 0;
        for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
    }
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        crc = (crc >> 8) ^ kTables[0][(crc ^ byte) & 0xff];
    }
    return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
    return std::rotr(crc32c(bytes), 15) + 0xa282ead8;
}

void append_record(std::string& file, std::string_view bytes) {
    const std::uint64_t length = bytes.size();
    const std::string_view length_bytes(reinterpret_cast<const char*>(&length), sizeof length);
    file.append(length_bytes);
    append_integer(file, masked_crc32c(length_bytes));
    file.append(bytes);
    append_integer(file, masked_crc32c(bytes));
}

}  // namespace axle::accel
