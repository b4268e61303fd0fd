#include "data/images/decoders.h"

#ifdef AXLE_HAS_JPEG
#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <new>
#include <vector>

#include <jerror.h>
#include <jpeglib.h>

namespace axle::data {
namespace {

// Each scan of a progressive image can take as long as the whole image but needs only a few bytes.
// Encoders write about ten.
constexpr int kMaxScans = 100;

// One image that libjpeg decodes. libjpeg reports an error by a jump to the last call of guarded(),
// which must not skip destructors: a step changes only members and local numbers.
class JpegDecoder {
  public:
    explicit JpegDecoder(const EncodedImage& image) : image_(image) {}
    ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
    JpegDecoder(const JpegDecoder&) = delete;
    JpegDecoder& operator=(const JpegDecoder&) = delete;

    Tensor decode();

  private:
    static JpegDecoder& of(j_common_ptr info) {
        return *static_cast<JpegDecoder*>(info->client_data);
    }
    static void fail(j_common_ptr info);
    static ::boolean fill(j_decompress_ptr info);
    static void skip(j_decompress_ptr info, long count);
    static void check_scans(j_common_ptr info);

    template <class Step>
    void guarded(Step step);
    [[noreturn]] void throw_error() const;
    void read_header();
    void read_pixels();
    void store(const std::uint8_t* row, std::int64_t y);

    EncodedImage image_;
    jpeg_decompress_struct info_{};
    jpeg_error_mgr errors_{};
    jpeg_source_mgr source_{};
    jpeg_progress_mgr progress_{};
    std::jmp_buf jump_{};
    std::array<char, JMSG_LENGTH_MAX> message_{};
    const char* reason_ = message_.data();  // of the error
    bool out_of_memory_ = false;
    Tensor pixels_;
    std::vector<std::uint8_t> row_, converted_;
};

void JpegDecoder::fail(j_common_ptr info) {
    JpegDecoder& self = of(info);
    self.out_of_memory_ = info->err->msg_code == JERR_OUT_OF_MEMORY;
    self.errors_.format_message(info, self.message_.data());
    std::longjmp(self.jump_, 1);  // NOLINT(cert-err52-cpp): the only way out of libjpeg
}

// Called when libjpeg needs more bytes than there are.
::boolean JpegDecoder::fill(j_decompress_ptr info) {
    of(reinterpret_cast<j_common_ptr>(info)).reason_ = "the file is truncated";
    ERREXIT(info, JERR_INPUT_EOF);
    return FALSE;
}

void JpegDecoder::skip(j_decompress_ptr info, long count) {
    if (count <= 0) return;
    jpeg_source_mgr& source = *info->src;
    if (static_cast<std::size_t>(count) > source.bytes_in_buffer) fill(info);
    source.next_input_byte += count;
    source.bytes_in_buffer -= static_cast<std::size_t>(count);
}

void JpegDecoder::check_scans(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
    of(info).reason_ = "the image has more than 100 scans";
    ERREXIT(info, JERR_INPUT_EOF);
}

template <class Step>
void JpegDecoder::guarded(Step step) {
    if (setjmp(jump_) != 0) throw_error();  // NOLINT(cert-err52-cpp)
    step();
}

void JpegDecoder::throw_error() const {
    if (out_of_memory_) throw std::bad_alloc();
    throw_damaged(image_, "JPEG", reason_);
}

void JpegDecoder::read_header() {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = fail;
    errors_.emit_message = [](j_common_ptr, int) {};  // Pillow ignores warnings, too
    errors_.output_message = [](j_common_ptr) {};
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(image_.bytes.data());
    source_.bytes_in_buffer = image_.bytes.size();
    source_.init_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = fill;
    source_.skip_input_data = skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = [](j_decompress_ptr) {};
    progress_.progress_monitor = check_scans;
    guarded([this] {
        jpeg_create_decompress(&info_);
        info_.src = &source_;
        info_.progress = &progress_;
        jpeg_read_header(&info_, TRUE);
    });
}

// Writes a row to the tensor, and converts inverted CMYK with the arithmetic of Pillow.
void JpegDecoder::store(const std::uint8_t* row, std::int64_t y) {
    if (info_.out_color_space != JCS_CMYK) return store_row(row, y, pixels_);
    const bool gray = image_.options.mode == ImageMode::gray;
    std::uint8_t* to = converted_.data();
    for (JDIMENSION x = 0; x < info_.output_width; ++x, row += 4) {
        std::array<int, 3> color{};
        for (std::size_t c = 0; c < 3; ++c) {
            const int product = row[3] * (255 - row[c]) + 128;
            color[c] = std::clamp(row[3] - (((product >> 8) + product) >> 8), 0, 255);
        }
        if (gray) {
            *to++ = static_cast<std::uint8_t>(
                (color[0] * 19595 + color[1] * 38470 + color[2] * 7471 + 0x8000) >> 16);
        } else {
            for (const int value : color) *to++ = static_cast<std::uint8_t>(value);
        }
    }
    store_row(converted_.data(), y, pixels_);
}

void JpegDecoder::read_pixels() {
    const std::size_t width = info_.image_width;
    row_.resize(4 * width);
    if (info_.out_color_space == JCS_CMYK) converted_.resize(3 * width);
    guarded([this] {
        jpeg_start_decompress(&info_);
        JSAMPROW rows[] = {row_.data()};
        while (info_.output_scanline < info_.output_height) {
            const JDIMENSION y = info_.output_scanline;
            jpeg_read_scanlines(&info_, rows, 1);
            store(row_.data(), y);
        }
        jpeg_finish_decompress(&info_);
    });
}

Tensor JpegDecoder::decode() {
    read_header();
    pixels_ = pixels_for(image_, "JPEG", info_.image_height, info_.image_width);
    if (info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK) {
        info_.out_color_space = JCS_CMYK;
    } else {
        info_.out_color_space = image_.options.mode == ImageMode::gray ? JCS_GRAYSCALE : JCS_RGB;
    }
    read_pixels();
    return pixels_;
}

}  // namespace

Tensor decode_jpeg(const EncodedImage& image) { return JpegDecoder(image).decode(); }
bool has_jpeg() { return true; }

}  // namespace axle::data
#else
namespace axle::data {

Tensor decode_jpeg(const EncodedImage& image) { throw_no_decoder(image, "JPEG", "libjpeg-dev"); }
bool has_jpeg() { return false; }

}  // namespace axle::data
#endif
