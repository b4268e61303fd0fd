// Private to data: gzip data, inflated piece by piece: nobody has to believe what a compressed file
// says about its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct z_stream_s;  // zlib's

namespace axle::inline v0::data {

// Whether the bytes start as gzip data do.
bool is_gzip(std::span<const std::byte> bytes);

// Reads gzip data (RFC 1952) of one or more members, which must outlive the reader. Damage is a
// FileError with the name, the offset in the compressed bytes and the reason. One thread at a time.
class GzipReader {
  public:
    // Deflate can't shrink anything further: 258 bytes take two bits.
    static constexpr std::int64_t kMaxInflateRatio = 1032;

    GzipReader(std::span<const std::byte> bytes, std::string name);

    // The next bytes, fewer than out holds only at the end. All members are then whole, with the
    // right checksums, and nothing follows them.
    std::size_t read(std::span<std::byte> out);

  private:
    struct End {
        void operator()(z_stream_s* stream) const;
    };

    void inflate_some();
    void end_member();
    [[noreturn]] void refuse(const std::string& what) const;

    std::string name_;
    std::int64_t size_;
    std::span<const std::byte> rest_;  // not yet given to zlib
    std::unique_ptr<z_stream_s, End> stream_;
    bool ended_ = false;
};

}  // namespace axle::inline v0::data
