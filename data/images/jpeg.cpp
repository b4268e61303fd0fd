#include "data/images/decoders.h"

#ifdef AXLE_HAS_JPEG
#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <new>
#include <string_view>
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

    Tensor decode(const ChooseWindow& choose);

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
    void read_window(const ImageWindow& window);
    void read_rows(std::int64_t count, std::int64_t left);
    void find_end();
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

// Writes a row of the tensor's width, and converts inverted CMYK with the arithmetic of Pillow.
void JpegDecoder::store(const std::uint8_t* row, std::int64_t y) {
    if (info_.out_color_space != JCS_CMYK) return store_row(row, y, pixels_);
    const bool gray = image_.options.mode == ImageMode::gray;
    std::uint8_t* to = converted_.data();
    for (std::int64_t x = 0; x < pixels_.size(2); ++x, row += 4) {
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

// Reads rows into the tensor. `left` is the first column of the tensor in the rows.
void JpegDecoder::read_rows(std::int64_t count, std::int64_t left) {
    JSAMPROW rows[] = {row_.data()};
    for (std::int64_t y = 0; y < count; ++y) {
        jpeg_read_scanlines(&info_, rows, 1);
        store(row_.data() + left * info_.out_color_components, y);
    }
}

void JpegDecoder::read_pixels() {
    guarded([this] {
        jpeg_start_decompress(&info_);
        read_rows(info_.output_height, 0);
        jpeg_finish_decompress(&info_);
    });
}

// Decodes the rows and the blocks of the window, and of margins in which the colors are
// interpolated as at the edge of an image. Of the rows above it, only the Huffman codes are read.
void JpegDecoder::read_window(const ImageWindow& window) {
    guarded([&] {
        jpeg_start_decompress(&info_);
        const std::int64_t width = info_.output_width, height = info_.output_height;
        const std::int64_t first = std::max<std::int64_t>(window.left - DCTSIZE, 0);
        const std::int64_t last = std::min(window.left + window.size.w + DCTSIZE, width);
        auto left = static_cast<JDIMENSION>(first), columns = static_cast<JDIMENSION>(last - first);
        if (last - first < width) jpeg_crop_scanline(&info_, &left, &columns);
        if (window.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(window.top));
        read_rows(window.size.h, window.left - left);
        if (window.top + window.size.h < height)
            find_end();
        else
            jpeg_finish_decompress(&info_);
    });
}

// Requires the marker at the end of the image, FF D9, which is not a part of Huffman codes. The
// decoder may have found it already.
void JpegDecoder::find_end() {
    if (info_.unread_marker == JPEG_EOI) return;
    const auto* const next = reinterpret_cast<const char*>(info_.src->next_input_byte);
    const std::string_view rest(next, info_.src->bytes_in_buffer);
    if (rest.find("\xff\xd9") == std::string_view::npos) fill(&info_);
}

Tensor JpegDecoder::decode(const ChooseWindow& choose) {
    read_header();
    const Size2 size(info_.image_height, info_.image_width);
    check_size(image_, "JPEG", size);
    const ImageWindow whole = {.size = size}, window = choose ? choose(size) : whole;
    // All rows of a progressive image are decoded before the first is complete.
    const bool is_part = window != whole && !jpeg_has_multiple_scans(&info_);
    pixels_ = pixels_for(image_, is_part ? window.size : size);
    row_.resize(4 * static_cast<std::size_t>(size.w));
    converted_.resize(3 * static_cast<std::size_t>(size.w));
    if (info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK) {
        info_.out_color_space = JCS_CMYK;
    } else {
        info_.out_color_space = image_.options.mode == ImageMode::gray ? JCS_GRAYSCALE : JCS_RGB;
    }
    if (is_part) {
        read_window(window);
        return pixels_;
    }
    read_pixels();
    return pixels_.narrow(1, window.top, window.size.h).narrow(2, window.left, window.size.w);
}

}  // namespace

Tensor decode_jpeg(const EncodedImage& image, const ChooseWindow& choose) {
    return JpegDecoder(image).decode(choose);
}
bool has_jpeg() { return true; }

}  // namespace axle::data
#else
namespace axle::data {

Tensor decode_jpeg(const EncodedImage& image, const ChooseWindow&) {
    throw_no_decoder(image, "JPEG", "libjpeg-dev");
}
bool has_jpeg() { return false; }

}  // namespace axle::data
#endif
