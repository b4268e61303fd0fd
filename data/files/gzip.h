// Private to data: incremental gzip decompression. A caller can stop reading at a limit, so that a
// wrong size in a file does not cause a large allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct z_stream_s;  // declared by zlib

namespace axle::data {

// Returns whether the bytes start with the gzip magic number.
bool is_gzip(std::span<const std::byte> bytes);

// Reads gzip data (RFC 1952) with one or more members. The data must outlive the reader. The
// constructor and read() throw std::bad_alloc if zlib cannot allocate memory. Not thread-safe.
class GzipReader {
  public:
    GzipReader(std::span<const std::byte> bytes, std::string name);

    // Reads the next bytes into `out` and returns their number. The number is less than out.size()
    // only at the end of the data, after all checksums were verified. Throws FileError with the
    // name, the offset in the compressed bytes and the reason if the data are corrupt or truncated,
    // or other bytes follow them.
    std::size_t read(std::span<std::byte> out);

  private:
    struct End {
        void operator()(z_stream_s* stream) const;
    };

    void inflate_some();
    void end_member();
    [[noreturn]] void throw_here(const std::string& what) const;

    std::string name_;
    std::int64_t size_;
    std::span<const std::byte> rest_;  // not yet passed to zlib
    std::unique_ptr<z_stream_s, End> stream_;
    bool ended_ = false;
};

}  // namespace axle::data
