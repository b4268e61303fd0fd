#include "data/files/gzip.h"

#include <algorithm>
#include <new>
#include <utility>

#include <zlib.h>

#include "data/files/bytes.h"

namespace axle::data {
namespace {

constexpr std::size_t kMaxChunk = 1u << 30;  // zlib counts the bytes of a chunk in 32 bits
constexpr int kGzipOnly = 16 + MAX_WBITS;    // makes zlib expect a gzip header

}  // namespace

bool is_gzip(std::span<const std::byte> bytes) {
    return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

void GzipReader::End::operator()(z_stream_s* stream) const {
    inflateEnd(stream);
    delete stream;
}

GzipReader::GzipReader(std::span<const std::byte> bytes, std::string name)
    : name_(std::move(name)), size_(std::ssize(bytes)), rest_(bytes), stream_(new z_stream_s{}) {
    if (inflateInit2(stream_.get(), kGzipOnly) != Z_OK) throw std::bad_alloc();
}

std::size_t GzipReader::read(std::span<std::byte> out) {
    std::size_t done = 0;
    while (done < out.size() && !ended_) {
        const std::size_t chunk = std::min(out.size() - done, kMaxChunk);
        stream_->next_out = reinterpret_cast<Bytef*>(out.data() + done);
        stream_->avail_out = static_cast<uInt>(chunk);
        inflate_some();
        done += chunk - stream_->avail_out;
    }
    return done;
}

void GzipReader::inflate_some() {
    if (stream_->avail_in == 0) {
        const std::size_t chunk = std::min(rest_.size(), kMaxChunk);
        stream_->next_in =
            const_cast<Bytef*>(reinterpret_cast<const Bytef*>(rest_.data()));  // zlib only reads
        stream_->avail_in = static_cast<uInt>(chunk);
        rest_ = rest_.subspan(chunk);
    }
    switch (inflate(stream_.get(), Z_NO_FLUSH)) {
        case Z_OK:
            return;
        case Z_STREAM_END:
            return end_member();
        case Z_BUF_ERROR:  // no input is left, but the output buffer is not full
            throw_here("the gzip data are truncated");
        case Z_MEM_ERROR:
            throw std::bad_alloc();
        default:
            throw_here(std::string("the gzip data are corrupt: ") +
                       (stream_->msg != nullptr ? stream_->msg : "unknown error"));
    }
}

// Called at the end of a member. Starts the next member, which must follow without a gap, or sets
// ended_ if no bytes are left.
void GzipReader::end_member() {
    // next_in and rest_ are contiguous: zlib has received the first part of these bytes.
    const std::span<const std::byte> next(reinterpret_cast<const std::byte*>(stream_->next_in),
                                          stream_->avail_in + rest_.size());
    ended_ = next.empty();
    if (ended_) return;
    if (!is_gzip(next)) throw_here("unexpected bytes after the gzip data");
    inflateReset(stream_.get());
}

void GzipReader::throw_here(const std::string& what) const {
    throw_at_byte(name_, size_ - std::ssize(rest_) - std::int64_t{stream_->avail_in}, what);
}

}  // namespace axle::data
